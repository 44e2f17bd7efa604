"""The token of a local cluster: who knows it is the account that started the cluster, or root.

Ports of one machine are open to all its accounts. The token lies in the cluster's state folder, which they cannot
read, and reaches roles and coordinators in their environment.
"""

import os
import re
import secrets
from collections.abc import MutableMapping
from contextlib import suppress
from pathlib import Path

VARIABLE = "PSCLUSTER_TOKEN"
STATE = ".pscluster"
"""Folder beside the inventory with a folder for each of its clusters."""
NAME = "token"
_TOKEN = re.compile(r"[0-9a-f]{64}")


def own_token() -> str | None:
    """The token that this process was started with; None without one."""
    return os.environ.get(VARIABLE) or None


def kept_token(folder: Path) -> str:
    """The token in `folder`, made where there is none. Raises OSError."""
    found = read_token(folder)
    if found is not None:
        return found
    fresh = secrets.token_hex(32)
    new = folder / f".{NAME}-{os.getpid()}-{secrets.token_hex(4)}"
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(f"{fresh}\n")
    try:
        if (folder / NAME).exists():  # it is none, or another process has just made it
            return read_token(folder) or _replaced(new, folder, fresh)
        os.link(new, folder / NAME)
    except FileExistsError:
        return read_token(folder) or fresh
    finally:
        new.unlink(missing_ok=True)
    return fresh


def _replaced(new: Path, folder: Path, fresh: str) -> str:
    new.replace(folder / NAME)
    return fresh


def read_token(folder: Path) -> str | None:
    """The token in `folder`; None where none can be read."""
    with suppress(OSError, UnicodeDecodeError):
        text = (folder / NAME).read_text().strip()
        if _TOKEN.fullmatch(text):
            return text
    return None


def adopt(inventory: Path, cluster: str, environment: MutableMapping[str, str] = os.environ) -> None:
    """Take the token of the local cluster in the file `inventory`, for a coordinator that is started by hand."""
    if VARIABLE not in environment:
        found = read_token(inventory.resolve().parent / STATE / cluster)
        if found is not None:
            environment[VARIABLE] = found
