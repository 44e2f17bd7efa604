"""Files and folders that root makes, gives away and removes on a node, by no foreign link.

Like systemd-tmpfiles, it opens a path one folder at a time by file descriptor, and refuses a folder
that another account could change meanwhile.

Runs in the system's Python. A deployment starts it for each file, and a Pi is slow to import: what
only one verb needs is imported there.
"""

import contextlib
import errno
import grp
import os
import pwd
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
MOST_LINKS = 40
BLOCK_BYTES = 1 << 20
_OF_THE_FILE = frozenset({errno.ELOOP, errno.EACCES, errno.EISDIR, errno.ENXIO})
"""Errors that the file itself causes; others come from its disk or server."""


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


def account_ids(owner: str) -> tuple[int, int]:
    """Uid and gid of an account."""
    try:
        account = pwd.getpwnam(owner)
        group = grp.getgrgid(account.pw_gid)
    except KeyError:
        raise Refused(
            f"{owner}: expected an account with a group, found none: `fab deploy start` makes it"
        ) from None
    return account.pw_uid, group.gr_gid


def settle(descriptor: int, mode: int, uid: int, gid: int) -> None:
    """Set owner and mode of an open file; root takes it first from its old owner."""
    os.fchown(descriptor, os.geteuid(), -1)
    for name in ("system.posix_acl_access", "system.posix_acl_default"):
        with contextlib.suppress(OSError):
            os.removexattr(descriptor, name)
    os.fchmod(descriptor, mode)
    os.fchown(descriptor, uid, gid)


def make_folder(path: str, mode: str, owner: str) -> None:
    """Make a folder with this mode and owner; an existing one keeps its content."""
    uid, gid = account_ids(owner)
    with parent_of(path, make=True) as (parent, name):
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=parent)
        try:
            descriptor = os.open(name, FOLDER, dir_fd=parent)
        except OSError as problem:
            if problem.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
            status = os.lstat(name, dir_fd=parent)
            # Root may have linked it to another disk.
            if not made_by_root(status) or uid not in owners():
                raise Refused(
                    f"{path}: expected a folder, found {kind(status)} of uid {status.st_uid}: look"
                    " at who made it, and remove it"
                ) from None
            with Walk(path) as walk:
                settle(walk.here, int(mode, 8), uid, gid)
            return
        try:
            settle(descriptor, int(mode, 8), uid, gid)
        finally:
            os.close(descriptor)


def give_folder(path: str, mode: str, owner: str) -> None:
    """Make a folder with this mode and owner, who gets all folders and plain files in it.

    Root takes each folder before it looks into it: the old owner can change nothing meanwhile. A
    file with a second name stays the old owner's, because that name may be in another folder.
    """
    uid, gid = account_ids(owner)
    make_folder(path, "700", "root")
    with parent_of(path) as (parent, name):
        folder = os.open(name, FOLDER, dir_fd=parent)
        try:
            give_all(folder, uid, gid)
            settle(folder, int(mode, 8), uid, gid)
        finally:
            os.close(folder)


def give_all(folder: int, uid: int, gid: int) -> None:
    """Give an account what is in a folder of root's."""
    for name in os.listdir(folder):
        try:
            descriptor = os.open(name, READ, dir_fd=folder)
        except OSError as problem:
            if problem.errno in (errno.ELOOP, errno.ENXIO):  # a link, a socket
                continue
            raise
        try:
            status = os.fstat(descriptor)
            if stat.S_ISDIR(status.st_mode):
                os.fchown(descriptor, os.geteuid(), -1)
                give_all(descriptor, uid, gid)
                os.fchown(descriptor, uid, gid)
            elif stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
                os.fchown(descriptor, uid, gid)
        finally:
            os.close(descriptor)


def make_point(path: str) -> None:
    """Make a mount point. It does not open an existing one: that would trigger the automount."""
    with parent_of(path, make=True) as (parent, name):
        try:
            os.mkdir(name, 0o755, dir_fd=parent)
        except FileExistsError:
            status = os.stat(name, dir_fd=parent, follow_symlinks=False)
            if not stat.S_ISDIR(status.st_mode):
                raise Refused(
                    f"{path}: expected a folder, found {kind(status)}: remove it"
                ) from None


def put(parent: int, name: str, blocks: Iterable[bytes], mode: int, uid: int, gid: int) -> None:
    """Write a file of these blocks in the folder `parent`, whole or not at all.

    It takes the place of a file or a link of that name.
    """
    partial = f".{name}.{os.getpid()}.partial"
    descriptor = os.open(partial, NEW, 0o600, dir_fd=parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(blocks)
            os.fchmod(descriptor, mode)
            os.fchown(descriptor, uid, gid)
        os.replace(partial, name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(partial, dir_fd=parent)
        raise


def write(path: str, mode: str, owner: str, size: str) -> None:
    """Write stdin to the file `path`. Raises Refused for another size, unless that is empty."""

    def blocks() -> Iterator[bytes]:
        received = 0
        while block := os.read(sys.stdin.fileno(), BLOCK_BYTES):
            received += len(block)
            yield block
        if size not in ("", str(received)):
            raise Refused(f"{path}: expected {size} bytes, {received} came: try it again")

    uid, gid = account_ids(owner)
    with parent_of(path) as (parent, name):
        put(parent, name, blocks(), int(mode, 8), uid, gid)


def discard(parent: int, name: str) -> None:
    """Remove a file, folder or link of any kind; of a link only the link itself."""
    with contextlib.suppress(FileNotFoundError):
        status = os.lstat(name, dir_fd=parent)
        if not stat.S_ISDIR(status.st_mode):
            os.unlink(name, dir_fd=parent)
            return
        import shutil

        try:
            shutil.rmtree(name, dir_fd=parent)
        except (RecursionError, OSError) as problem:
            if isinstance(problem, OSError) and problem.errno != errno.EMFILE:
                raise
            import subprocess

            # It is too deep for this program; rm keeps no folder open, and follows no link either.
            os.fchdir(parent)
            subprocess.run(["rm", "-r", "-f", "--", name], stdin=subprocess.DEVNULL, check=True)


def remove(path: str) -> None:
    """Remove `path`."""
    with contextlib.suppress(FileNotFoundError), parent_of(path) as (parent, name):
        discard(parent, name)


def copy(source: str, target: str, listed: str) -> None:
    """Copy files of an untrusted folder into the new `target`; refuse a copy of another hash.

    `listed`: JSON, name, SHA-256 and bytes of each.
    """
    import json

    with parent_of(target) as (parent, name):
        os.mkdir(name, 0o755, dir_fd=parent)
        folder = os.open(name, FOLDER, dir_fd=parent)
        try:
            for file_name, sha256, size in json.loads(listed):
                copy_one(source, folder, file_name, sha256, size)
        finally:
            os.close(folder)


def copy_one(source: str, folder: int, name: str, sha256: str, size: int) -> None:
    """Copy one file; it is read once, so that the hash is that of the copy."""
    where = os.path.join(source, name)
    try:
        source_descriptor = os.open(where, READ)
    except FileNotFoundError:
        raise Refused(
            f"{where} is not there: is the shared folder mounted? If it is, publish it again", 74
        ) from None
    except OSError as problem:
        remedy = "publish it again"
        if problem.errno not in _OF_THE_FILE:
            remedy = "does this node reach the server of the shared folder? `fab deploy check` says"
        raise Refused(f"{where} cannot be read ({problem.strerror}): {remedy}", 72) from None
    try:
        status = os.fstat(source_descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size != size:
            raise Refused(
                f"{where}: expected a file of {size} bytes, found {kind(status)} of"
                f" {status.st_size}: publish it again",
                72,
            )
        if receive(source_descriptor, folder, name, size)[1] != sha256:
            os.unlink(name, dir_fd=folder)
            raise Refused(f"{where} is not the file that was published: publish it again", 72)
    finally:
        os.close(source_descriptor)


def receive(source: int, folder: int, name: str, size: int) -> tuple[int, str]:
    """Write at most `size` bytes of `source` as a new file; how many came, and their SHA-256."""
    import hashlib

    if "/" in name or name in ("", ".", ".."):
        raise Refused(f"{name!r}: expected a plain file name")
    digest = hashlib.sha256()
    received = 0
    descriptor = os.open(name, NEW, 0o644, dir_fd=folder)
    with os.fdopen(descriptor, "wb") as file:
        while block := os.read(source, min(size - received, BLOCK_BYTES)):
            digest.update(block)
            file.write(block)
            received += len(block)
        os.fchmod(descriptor, 0o644)
    return received, digest.hexdigest()


FILE_VERBS: Mapping[str, Callable[..., None]] = {
    "folder": make_folder,
    "give": give_folder,
    "point": make_point,
    "write": write,
    "remove": remove,
    "copy": copy,
}


def run(arguments: Sequence[str], verbs: Mapping[str, Callable[..., None]]) -> int:
    """Do one verb; return 0, or 71 for a full disk, 72 for another hash, 74 for no file, else 1."""
    os.umask(0o022)
    try:
        verbs[arguments[0]](*arguments[1:])
    except Refused as refused:
        print(refused, file=sys.stderr)
        return refused.code
    except OSError as problem:
        print(f"{' '.join(arguments[1:2])}: {problem}", file=sys.stderr)
        return 71 if problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else 1
    return 0
