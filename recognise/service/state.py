"""The folder with a service's token and versions, for its owner alone, and its file of targets.

`targets/NAME-PORT.json`, by which a Prometheus of this machine finds the service, is there while it
answers. A service that was killed leaves its file behind: so Prometheus reports it as down until
the next one starts here.
"""

import json
import logging
import os
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from core.control.own_state import kept_token, make_private, state_of_services
from core.ground.addresses import with_port
from core.ground.errors import ClusterError, UsageError, reason_of
from core.ground.files import atomic_write
from core.ground.locks import locked

OTHERWISE = "work in another folder"
"""A remedy where the state cannot be written."""
MODELS = "models"
"""The folder in it that holds the versions, unless they lie elsewhere."""
_OWN_TOKEN = re.compile(r"[!-~]{16,512}")
_LARGEST_TOKEN_FILE = 4096
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")


def made(folder: Path) -> Path:
    """Make `folder` for its owner only, and return it.

    Raises ClusterError where that cannot be, or where it is another's.
    """
    try:
        make_private(folder)
        if folder.is_symlink() or folder.lstat().st_uid != os.getuid():
            raise ClusterError(
                f"{folder}: expected a folder of this account: work in another folder"
            )
        folder.chmod(0o700)
    except OSError as problem:
        raise ClusterError(
            f"{folder}: cannot be made ({reason_of(problem)}): work in another folder"
        ) from None
    return folder


def folder_of(option: str | None) -> Path:
    """Return the folder that `--state` names, else that of services that start in this folder.

    Raises ClusterError.
    """
    if option is None:
        return state_of_services(Path.cwd())
    return Path(option)


def token(folder: Path) -> str:
    """Return the token of the services here, made at the first start. Raises ClusterError."""
    try:
        return kept_token(made(folder))
    except OSError as problem:
        raise ClusterError(
            f"{folder}: the token cannot be kept ({reason_of(problem)}): work in another folder"
        ) from None


def token_in(path: Path) -> str:
    """Return the operator's own token in a file, such as a mounted Secret. Raises UsageError."""
    try:
        with path.open("rb") as file:  # through links too: Kubernetes mounts its Secrets so
            text = file.read(_LARGEST_TOKEN_FILE).decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as problem:
        raise UsageError(
            f"{path}: the token cannot be read ({reason_of(problem)}): check --token-file"
        ) from None
    if not _OWN_TOKEN.fullmatch(text):
        raise UsageError(
            f"{path}: expected a token of 16 to 512 visible ASCII characters, got another text of"
            f" {len(text)}: make one with `openssl rand -hex 32`"
        )
    return text


def versions_of(models: Path, name: str) -> Path:
    """Return where the versions of the model `name` are. It makes nothing.

    Raises UsageError for what is no name.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"--name: expected letters, digits, `-`, `_` and `.`, at most 63, got {name!r:.80}"
        )
    return models / name


log = logging.getLogger(__name__)

TARGETS = "targets"
LOCK = ".targets.lock"
_EVERY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


@contextmanager
def announced(folder: Path, name: str, host: str, port: int) -> Iterator[None]:
    """Have the figures at this port among the targets in `folder` for the length of the block.

    A folder that cannot be written is a line of the log: the service answers without a Prometheus
    too.
    """
    path = folder / f"{name}-{port}.json"
    with ExitStack() as until_the_end:
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            # Another service that starts would take ours for a killed one's.
            with locked(folder.with_name(LOCK)):
                for other in folder.glob("*.json"):
                    if other != path:
                        with suppress(BlockingIOError), locked(other, wait=False):
                            other.unlink()
                atomic_write(path, content(name, host, port), OTHERWISE)
                until_the_end.enter_context(locked(path, wait=False))
                until_the_end.callback(path.unlink, missing_ok=True)
        except (OSError, ClusterError) as problem:
            log.warning(
                "%s: cannot be kept (%s): no Prometheus here finds this service",
                path,
                reason_of(problem),
            )
        yield


def content(name: str, host: str, port: int) -> bytes:
    """Return the file: the address on this machine, and labels that say where it is."""
    target = with_port(_EVERY_ADDRESS.get(host, host), port)
    labels = {
        "__scheme__": "http",
        "node": socket.gethostname(),
        "process": f"service:{name}",
    }
    return json.dumps([{"targets": [target], "labels": labels}], indent=2).encode() + b"\n"
