"""The token of a local cluster. Only the account that started the cluster and root know it.

All accounts of a machine reach its ports. The token is in the cluster's state folder, which other accounts cannot read,
and in the environment of roles and coordinators.
"""

import os
import re
import secrets
from collections.abc import MutableMapping
from contextlib import suppress
from pathlib import Path

VARIABLE = "PSCLUSTER_TOKEN"
STATE = ".pscluster"
"""The folder beside the inventory that holds one folder for each of its clusters."""
NAME = "token"
_TOKEN = re.compile(r"[0-9a-f]{64}")


def own_token() -> str | None:
    """The token in this process's environment; None without one."""
    return os.environ.get(VARIABLE) or None


def kept_token(folder: Path) -> str:
    """The token in `folder`; makes one if there is none. Raises OSError."""
    found = read_token(folder)
    if found is not None:
        return found
    fresh = secrets.token_hex(32)
    new = folder / f".{NAME}-{os.getpid()}-{secrets.token_hex(4)}"
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(f"{fresh}\n")
    try:
        if (folder / NAME).exists():  # it is invalid, or another process has just made it
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
    """The token in `folder`; None without a readable one."""
    with suppress(OSError, UnicodeDecodeError):
        text = (folder / NAME).read_text().strip()
        if _TOKEN.fullmatch(text):
            return text
    return None


def adopt(inventory: Path, cluster: str, environment: MutableMapping[str, str] = os.environ) -> None:
    """Put the token of this local cluster into the environment, for a coordinator that a person starts."""
    if VARIABLE not in environment:
        found = read_token(inventory.resolve().parent / STATE / cluster)
        if found is not None:
            environment[VARIABLE] = found
