"""The folder `.pscluster`, which counts only where this account on this machine made it.

A project's folder from the net may bring one, with tokens, keys of hosts and links to files of the
person. So a folder that we make gets a mark: an HMAC over its path, with a key that this account
keeps elsewhere. What has no such mark is set aside.
"""

import errno
import os
import secrets
import stat
from collections.abc import MutableMapping
from contextlib import suppress
from pathlib import Path

from core.control.client import proof, same
from core.control.token import STATE, VARIABLE, kept_token, read_token
from core.errors import ClusterError, reason_of
from core.logs.terminal import say
from core.user_cache import user_state

MARK = ".mark"
KEY = "state-key"
_LONGEST_MARK = 256
_IGNORE = "# made by pscluster: state of running clusters\n*\n"


def make(folder: Path, mode: int = 0o777) -> None:
    """Make `folder` and all above it; a `.pscluster` on the way is ours, or set aside first.

    Raises OSError, and ClusterError for a place that another account could change.
    """
    for each in (folder, *folder.parents):
        if each.name == STATE:
            each.parent.mkdir(parents=True, exist_ok=True)
            _ours(each.absolute())
            break
    folder.mkdir(mode=mode, parents=True, exist_ok=True)


def check(state: Path) -> None:
    """Set the `.pscluster` aside unless it is ours. It makes none where there is none.

    Raises ClusterError.
    """
    with suppress(FileNotFoundError, NotADirectoryError):
        found = os.lstat(state)
        if not stat.S_ISDIR(found.st_mode) and not stat.S_ISLNK(found.st_mode):
            return  # what makes it says why it cannot
        try:
            _ours(state.absolute())
        except OSError as problem:
            raise ClusterError(
                f"{state}: cannot be used ({reason_of(problem)}): work in another folder"
            ) from None


def adopt(
    inventory: Path, cluster: str, environment: MutableMapping[str, str] = os.environ
) -> None:
    """Put this local cluster's token into the environment of a coordinator that a person starts.

    Raises ClusterError.
    """
    if VARIABLE in environment:
        return
    state = inventory.resolve().parent / STATE
    check(state)
    found = read_token(state / cluster)
    if found is not None:
        environment[VARIABLE] = found


def open_own(path: Path, flags: int, mode: int = 0o600) -> int:
    """Open a file of the state, never one that a link leads to. Raises OSError."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode)


def _ours(state: Path) -> None:
    state = state.parent.resolve() / state.name
    _refuse_foreign(state.parent)
    try:
        found = os.lstat(state)
    except FileNotFoundError:
        _make_marked(state)
        return
    if stat.S_ISDIR(found.st_mode):
        if found.st_uid != os.geteuid():
            raise ClusterError(
                f"{state} belongs to another account (uid {found.st_uid}): work in a folder of your"
                " own, or as that account"
            )
        if _is_marked(state):
            return
    elif not stat.S_ISLNK(found.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(state))
    _set_aside(state)
    _make_marked(state)


def _refuse_foreign(folder: Path) -> None:
    """Raise ClusterError for a folder whose entries another account could replace."""
    found = os.stat(folder)
    ours = {0, os.geteuid()}
    if os.geteuid() == 0:
        with suppress(ValueError):
            ours.add(int(os.environ.get("SUDO_UID", "")))
    if found.st_uid not in ours:
        raise ClusterError(
            f"{folder}: this project's folder belongs to another account (uid {found.st_uid}),"
            " which could change what is kept there: copy it into a folder of your own, or work as"
            " that account"
        )
    if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
        raise ClusterError(
            f"{folder}: every account may write to this project's folder, and could change what is"
            f" kept there: `chmod o-w {folder}`"
        )


def _expected(state: Path) -> str:
    folder = user_state()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        key = kept_token(folder, KEY)
    except OSError as problem:
        raise ClusterError(
            f"{folder}: the key of this account's state cannot be kept ({reason_of(problem)}): set"
            " XDG_STATE_HOME to a folder that you may write to"
        ) from None
    return proof(key, "state", os.fsdecode(state))


def _is_marked(state: Path) -> bool:
    try:
        with os.fdopen(open_own(state / MARK, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            given = file.read(_LONGEST_MARK).decode("ascii", errors="replace").strip()
    except OSError:
        return False
    return same(given, _expected(state))


def _make_marked(state: Path) -> None:
    """Make it whole under another name first: another command of ours may look at any moment."""
    new = state.with_name(f"{STATE}.{os.getpid()}-{secrets.token_hex(4)}")
    os.mkdir(new, 0o700)
    try:
        for name, text in ((MARK, f"{_expected(state)}\n"), (".gitignore", _IGNORE)):
            opened = open_own(new / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            with os.fdopen(opened, "w") as file:
                file.write(text)
        with suppress(FileExistsError, NotADirectoryError):
            os.rename(new, state)
            return
    except OSError as problem:
        _remove(new)
        if not _is_marked(state):  # else another command has just made it
            raise problem
        return
    _remove(new)


def _remove(new: Path) -> None:
    for name in (MARK, ".gitignore"):
        with suppress(OSError):
            (new / name).unlink()
    with suppress(OSError):
        new.rmdir()


def _set_aside(state: Path) -> None:
    number = 1
    while os.path.lexists(state.with_name(f"{STATE}.aside-{number}")):
        number += 1
    aside = state.with_name(f"{STATE}.aside-{number}")
    os.rename(state, aside)
    say(
        f"{state} was made by another account, machine or version, or for another path: none of"
        f" its tokens, keys of hosts and logs is used, it is {aside} now; what is yours of it comes"
        f" back with `mv {aside}/* {state}/`",
        error=True,
    )
