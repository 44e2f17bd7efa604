"""The state of this account: `$XDG_STATE_HOME/pscluster/`, with a folder for each cluster.

It lies outside of every project, so a project from the net brings no token, key or link of its own.
"""

import hashlib
import os
import stat
from pathlib import Path

from core.control.token import VARIABLE, own_token, read_token
from core.ground.errors import ClusterError, reason_of

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


def make(folder: Path) -> None:
    """Make `folder` and what is missing above it, for this account alone. Raises OSError."""
    for ancestor in (*reversed(folder.parents), folder):
        ancestor.mkdir(mode=0o700, exist_ok=True)


def adopt(inventory: Path, cluster: str) -> None:
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
