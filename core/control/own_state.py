"""This account's state: `$XDG_STATE_HOME/pscluster/`, a folder and a token for each cluster.

It lies outside of every project, so a project from the net brings no token, key or link of its own.

All accounts of a machine reach a cluster's ports, and its token is known to who started it and to
its coordinator: the token of a local cluster is in its state folder, which other accounts cannot
read, and in the environment of coordinators; on nodes systemd hands it to jobs. A role knows its
own key alone, which is made of the token and its name.
"""

import hashlib
import os
import re
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from core.control.client import key_of
from core.ground import locks
from core.ground.errors import ClusterError, reason_of
from core.ground.files import NO_LINK, whole_file

VARIABLE = "PSCLUSTER_TOKEN"
KEY_VARIABLE = "PSCLUSTER_KEY"
CREDENTIALS_VARIABLE = "CREDENTIALS_DIRECTORY"
"""Set by systemd (LoadCredential=): the folder with the files `token` or `key` of a unit."""
COORDINATOR = "coordinator:0"
NAME = "token"
KEY_NAME = "key"
_TOKEN = re.compile(r"[0-9a-f]{64}")
_LONGEST = 4096


_taken: dict[str, str] = {}
"""Secrets that `take` took, by their variables."""


def withdraw_token() -> None:
    """Take the token out of this process's environment, so that none of its children inherits it.

    It is for the main module of a process: nothing puts it back.
    """
    token = os.environ.pop(VARIABLE, None)
    if token is not None:
        _taken[VARIABLE] = token


def token_variables() -> dict[str, str]:
    """Return the variable for a child that is a coordinator too; empty where none was taken."""
    return dict(_taken)


def own_token() -> str | None:
    """The token that this process was given; None without one."""
    return os.environ.get(VARIABLE) or _taken.get(VARIABLE) or _credential(NAME)


def own_key(name: str) -> str | None:
    """The key of this process, whose name in the cluster is `name`; None without one."""
    key = os.environ.get(KEY_VARIABLE) or _credential(KEY_NAME)
    return key or key_of(own_token(), name)


def coordinator_key() -> str | None:
    """The key of the coordinator, where this process is it; None without one."""
    return own_key(COORDINATOR)


def _credential(name: str) -> str | None:
    folder = os.environ.get(CREDENTIALS_VARIABLE)
    if not folder:
        return None
    path = Path(folder, name)
    try:
        text = path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as problem:
        raise ClusterError(
            f"{path}: cannot be read ({reason_of(problem)}): systemd or a mounted Secret writes it"
        ) from None
    return text or None


def kept_token(folder: Path, name: str = NAME) -> str:
    """The token in `folder`; makes one if there is none. Raises OSError."""
    if token := read_token(folder, name):
        return token
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        locks.take(descriptor, wait=True)
        token = read_token(folder, name)  # another process may have just made it
        if token is None:
            token = secrets.token_hex(32)
            with whole_file(folder / name, 0o600) as file:
                file.write(f"{token}\n".encode())
        return token
    finally:
        os.close(descriptor)


def read_token(folder: Path, name: str = NAME) -> str | None:
    """The token in `folder`; None without a readable one, and where a link has its name."""
    with suppress(OSError, UnicodeDecodeError):
        opened = os.open(folder / name, NO_LINK)
        with os.fdopen(opened, encoding="ascii") as file:
            text = file.read(_LONGEST).strip()
        if is_token(text):
            return text
    return None


def is_token(text: str) -> bool:
    """Return whether this has the form of a token, and of a key."""
    return _TOKEN.fullmatch(text) is not None


OTHERWISE = "set XDG_STATE_HOME to a folder that you may write to"
"""Remedy where the state cannot be kept."""


def user_state() -> Path:
    """`$XDG_STATE_HOME/pscluster`, else `~/.local/state/pscluster`. It need not exist.

    A relative XDG_STATE_HOME counts as none: a folder from the net would bring its own. Raises
    ClusterError where the home is unknown.
    """
    base = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(base):
        base = os.path.expanduser("~/.local/state")
    if not os.path.isabs(base):
        raise ClusterError(
            "HOME: expected the absolute path of this account's home, which holds the state of its"
            f" clusters: set it, or {OTHERWISE}"
        )
    return Path(base, "pscluster")


def state_of(path: Path, name: str) -> Path:
    """Return the folder for the state of `name`, a cluster of the inventory `path`. It makes none.

    Raises ClusterError for one that is not this account's alone.
    """
    digest = hashlib.sha256(os.fsencode(path.resolve() / name)).hexdigest()
    folder = user_state() / f"{name[:12]}-{digest[:12]}"  # short: a socket's path is limited
    _refuse_shared(folder.parent, 0o022)  # earlier versions left it readable
    _refuse_shared(folder, 0o077)
    return folder


def state_of_services(project: Path) -> Path:
    """Return the folder for the state of the services that start in the folder `project`.

    No cluster's name begins with `_`. Raises ClusterError.
    """
    return state_of(project, "_service")


def make_private(folder: Path) -> None:
    """Make `folder` and what is missing above it, for this account alone. Raises OSError."""
    for ancestor in (*reversed(folder.parents), folder):
        ancestor.mkdir(mode=0o700, exist_ok=True)


def adopt_token(inventory: Path, cluster: str) -> None:
    """Put this local cluster's token into the environment of a coordinator that a person starts.

    Raises ClusterError.
    """
    if own_token() is None and (token := read_token(state_of(inventory, cluster))):
        os.environ[VARIABLE] = token


def _refuse_shared(folder: Path, forbidden_bits: int) -> None:
    try:
        status = os.lstat(folder)
    except FileNotFoundError:
        return
    except OSError as problem:
        raise ClusterError(
            f"{folder}: the state cannot be kept there ({reason_of(problem)}): {OTHERWISE}"
        ) from None
    if not stat.S_ISDIR(status.st_mode):
        raise ClusterError(f"{folder}: expected a folder, no link and no file: remove it")
    if status.st_uid != os.geteuid():
        raise ClusterError(
            f"{folder}: belongs to another account (uid {status.st_uid}): {OTHERWISE}, or work as"
            " that account"
        )
    if status.st_mode & forbidden_bits:
        raise ClusterError(f"{folder}: open to other accounts: `chmod 700 {folder}`")
