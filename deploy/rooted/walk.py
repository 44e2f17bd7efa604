"""Opens a path on a node as root, one folder at a time by file descriptor.

Runs in the system's Python.

Like systemd-tmpfiles, it refuses a folder that another account could change meanwhile. So only root
can replace what it has found by a link.
"""

import contextlib
import errno
import grp
import os
import pwd
import stat
from collections.abc import Iterator

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
MOST_LINKS = 40


class Refused(Exception):
    """One line: what was expected, what was found, what to do."""

    def __init__(self, line: str, code: int = 1) -> None:
        super().__init__(line)
        self.code = code


def owners() -> set[int]:
    """Accounts that may own a folder of the path: root, and the account behind sudo."""
    by_sudo = os.environ.get("SUDO_UID", "")
    return {0, os.geteuid(), *([int(by_sudo)] if by_sudo.isdigit() else [])}


def groups() -> set[int]:
    """Groups that may write to a folder of the path."""
    by_sudo = os.environ.get("SUDO_GID", "")
    return {0, os.getegid(), *([int(by_sudo)] if by_sudo.isdigit() else [])}


def look_over(path: str, status: os.stat_result) -> None:
    """Raises Refused for a folder in which another account could replace an entry by a link."""
    sticky = status.st_mode & stat.S_ISVTX
    writable_by_others = status.st_mode & stat.S_IWOTH or (
        status.st_mode & stat.S_IWGRP and status.st_gid not in groups()
    )
    if status.st_uid not in owners() or (writable_by_others and not sticky):
        raise Refused(
            f"{path}: expected a folder that only root can change, it belongs to uid"
            f" {status.st_uid} with mode {stat.S_IMODE(status.st_mode):04o}: look at what is in it,"
            f" then `sudo chown root: {path}; sudo chmod go-w {path}`"
        )


def made_by_root(status: os.stat_result) -> bool:
    """Return whether it is root's own link; one with two names may be another account's."""
    return stat.S_ISLNK(status.st_mode) and status.st_uid in owners() and status.st_nlink == 1


class Walk:
    """The path from `/` to a folder; every folder of it stays open until the end."""

    def __init__(self, path: str, make: bool = False) -> None:
        if not path.startswith("/"):
            raise Refused(f"{path!r}: expected an absolute path")
        self.make = make
        self.links = 0
        self.open = [("/", os.open("/", FOLDER))]
        rest = path.split("/")
        while rest:
            part = rest.pop(0)
            if part == "..":
                if len(self.open) > 1:
                    os.close(self.open.pop()[1])
            elif part not in ("", "."):
                rest = self.enter(part) + rest

    @property
    def here(self) -> int:
        """Descriptor of the reached folder."""
        return self.open[-1][1]

    @property
    def path(self) -> str:
        """Its path without links."""
        return self.open[-1][0]

    def enter(self, name: str) -> list[str]:
        """Open the folder `name`; for a link of root's return the parts of its target."""
        path = os.path.join(self.path, name)
        look_over(self.path, os.fstat(self.here))
        if self.make:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o755, dir_fd=self.here)
                os.chmod(name, 0o755, dir_fd=self.here)
        try:
            self.open.append((path, os.open(name, FOLDER, dir_fd=self.here)))
            return []
        except OSError as problem:
            if problem.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
        status = os.lstat(name, dir_fd=self.here)
        self.links += 1
        if not made_by_root(status) or self.links > MOST_LINKS:
            raise Refused(
                f"{path}: expected a folder, found {kind(status)} of uid {status.st_uid}: look at"
                " who made it, and remove it"
            )
        target = os.readlink(name, dir_fd=self.here)
        if target.startswith("/"):
            while len(self.open) > 1:
                os.close(self.open.pop()[1])
        return target.split("/")

    def __enter__(self) -> "Walk":
        return self

    def __exit__(self, *_: object) -> None:
        for _path, descriptor in self.open:
            os.close(descriptor)


@contextlib.contextmanager
def parent_of(path: str, make: bool = False) -> Iterator[tuple[int, str]]:
    """Give a descriptor of the folder of `path`, which root alone can change, and its last part."""
    head, name = os.path.split(path.rstrip("/"))
    if name in ("", ".", ".."):
        raise Refused(f"{path!r}: expected a path that ends with a name")
    with Walk(head, make) as walk:
        look_over(walk.path, os.fstat(walk.here))
        yield walk.here, name


def kind(status: os.stat_result) -> str:
    """A word for the kind of file."""
    for test, word in (
        (stat.S_ISLNK, "a symbolic link"),
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISREG, "a file"),
    ):
        if test(status.st_mode):
            return word
    return "a special file"


def ids(owner: str) -> tuple[int, int]:
    """Uid and gid of an account."""
    try:
        account = pwd.getpwnam(owner)
        group = grp.getgrgid(account.pw_gid)
    except KeyError:
        raise Refused(
            f"{owner}: expected an account with a group, found none: `fab deploy start` makes it"
        ) from None
    return account.pw_uid, group.gr_gid
