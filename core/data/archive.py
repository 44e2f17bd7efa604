"""Files of a source by their names, through folders, zips and zips in zips; gzip is undone.

An archive is read where it lies; one inside another is copied to a temporary file, which memory
holds while it is small.
"""

import gzip
import hashlib
import lzma
import os
import shutil
import stat
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from core.data.recordings import Report, silent
from core.ground.errors import DataError

LARGEST_TEXT_BYTES = 512 * 2**20
"""A recording or label file larger than this is refused: the largest published one has 17 MB."""
LARGEST_TOTAL_BYTES = 4 * 2**30
"""Most bytes that a zip may unpack to, nine times the largest set that is read from one."""
LARGEST_LIST_BYTES = 16 * 2**20
"""A zip's list of its files: 150,000 names. Python needs ten times its bytes to read it."""
SUSPICIOUS_RATIO = 200
SUSPICIOUS_BYTES = 64 * 2**20
"""Numbers as text compress to a fifth; a large file that compresses 200 to 1 is a bomb or holds no
recording."""
CHUNK_BYTES = 2**20

ZIP_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    OSError,
    ValueError,
    OverflowError,
    RuntimeError,
    MemoryError,
)
"""Errors that zipfile raises over damaged archives: its documentation promises BadZipFile, its
decompressors do not."""


RESOURCE_FORKS = "__MACOSX/"
"""Folder that macOS adds to its zips: companions of every file, under the same names."""
MOST_FILES = 100_000
DEEPEST = 3
"""Archives in archives."""
IN_MEMORY_BYTES = 32 * 2**20
ZIP = ".zip"
_GZIP = ".gz"


@dataclass(frozen=True)
class Member:
    """One file: the path on the disk, then a name in each archive, outermost first."""

    path: Path
    inner: tuple[str, ...]
    name: str
    """The path that patterns are matched with."""
    size: int
    """Bytes where it lies; of a file in an archive, unpacked."""

    @property
    def where(self) -> str:
        """The file's name in messages."""
        return ": ".join([str(self.path), *self.inner])

    @contextmanager
    def open(self, *, packed: bool = False) -> Iterator[IO[bytes]]:
        """Open its bytes, without gzip's unless it is to stay `packed`.

        Raises DataError for what is damaged, too large or no file.
        """
        with ExitStack() as stack:
            try:
                if not stat.S_ISREG(self.path.stat().st_mode):
                    raise no_file(self.path)
                raw: IO[bytes] = stack.enter_context(self.path.open("rb"))
                for name in self.inner:
                    raw = stack.enter_context(_entered(stack, raw, name, self.where))
                if self.where.lower().endswith(_GZIP) and not packed:
                    raw = cast(IO[bytes], gzip.GzipFile(fileobj=raw))
            except DataError:
                raise
            except (FileNotFoundError, PermissionError) as problem:
                raise unreadable(self.path, problem) from None
            except (KeyError, *ZIP_DAMAGE) as problem:
                raise _damaged(self.where, problem) from None
            yield raw

    def read(self, most_bytes: int = LARGEST_TEXT_BYTES) -> bytes:
        """Return its content. Raises DataError for what is damaged or too large."""
        content = b""
        if self.size <= most_bytes:
            with self.open() as raw:
                try:
                    content = raw.read(most_bytes + 1)
                except ZIP_DAMAGE as problem:
                    raise _damaged(self.where, problem) from None
        if max(self.size, len(content)) > most_bytes:
            raise DataError(
                f"{self.where}: larger than {most_bytes} bytes, which no recording is; record"
                " shorter files"
            )
        return content


def _entered(stack: ExitStack, raw: IO[bytes], name: str, where: str) -> IO[bytes]:
    archive = stack.enter_context(open_zip(raw, where))
    content = archive.open(name)
    if not name.lower().endswith(ZIP):
        return content
    copy = tempfile.SpooledTemporaryFile(IN_MEMORY_BYTES)  # noqa: SIM115
    stack.callback(copy.close)
    with content:
        shutil.copyfileobj(content, copy)
    copy.seek(0)
    return copy


def _damaged(where: str, problem: Exception) -> DataError:
    return DataError(f"{where}: damaged in the archive ({one_line(problem)[:80]}); fetch it again")


def no_file(path: Path) -> DataError:
    """Return the error for a folder or a pipe in the place of a file."""
    return DataError(
        f"{path}: expected a file, got something else of that name; restore it from the original"
    )


class FileTree:
    """Named files below one root, in a folder or in a zip. Names are relative and use slashes."""

    def __init__(self, path: Path, where: str, members: Mapping[str, Member]) -> None:
        """`path` is that of the folder or archive, `where` what messages call it."""
        self._path = path
        self.where = where
        self.members = members
        """The files by name, sorted."""

    def names(self) -> tuple[str, ...]:
        """Return the name of every file, sorted."""
        return tuple(self.members)

    def below(self, prefix: str) -> "FileTree":
        """Return the files as a folder inside sees them."""
        members = {
            name.removeprefix(prefix): member
            for name, member in self.members.items()
            if name.startswith(prefix)
        }
        return FileTree(self._path, self.where, members)

    def read(self, name: str) -> bytes:
        """Return one file. Raises DataError when it is missing, damaged or too large."""
        if name in self.members:
            return self.members[name].read()
        if (self._path / name).exists():
            raise no_file(self._path / name)
        raise DataError(f"{self.where}: {name} is missing; restore it from the original")


def tree_of(path: Path) -> FileTree:
    """Return the files of a folder, in linked folders too, or of a zip.

    Raises DataError when it is neither, a folder that cannot be listed or comes twice, or an
    archive that is truncated, names files outside itself, or unpacks to more than any recording
    does.
    """
    if not path.is_dir():
        return tree_of_zip(member_at(path, path.name))
    paths = []
    folders = set[tuple[int, int]]()
    for parent, _, files in os.walk(path, onerror=_refuse, followlinks=True):
        about = os.stat(parent)
        place = about.st_dev, about.st_ino
        if place in folders:
            raise DataError(
                f"{parent}: a link leads to a folder that is here already, whose files would"
                " come twice; remove it"
            )
        folders.add(place)
        paths += [Path(parent) / file for file in files]
        if len(paths) > MOST_FILES:
            raise _too_many(path)
    names = sorted(file.relative_to(path).as_posix() for file in paths)
    return FileTree(path, str(path), {name: member_at(path / name, name) for name in names})


def tree_of_zip(member: Member) -> FileTree:
    """Return the files of an archive. Raises DataError as `tree_of` does."""
    with member.open() as raw, open_zip(raw, member.where) as archive:
        sizes = {info.filename: info.file_size for info in archive.infolist() if not info.is_dir()}
    members = {
        name: Member(member.path, (*member.inner, name), f"{member.name}/{name}", sizes[name])
        for name in sorted(sizes)
    }
    return FileTree(member.path, member.where, members)


def member_at(path: Path, name: str) -> Member:
    """Return a file on the disk. Raises DataError where there is none."""
    try:
        return Member(path, (), name, path.stat().st_size)
    except OSError as problem:
        raise unreadable(path, problem) from None


def _refuse(problem: OSError) -> None:
    raise unreadable(Path(problem.filename), problem)


def members_of(source: Path) -> Iterator[Member]:
    """Yield every file of a folder, of a zip, or the one file itself. Raises DataError."""
    members = {source.name: member_at(source, source.name)}
    if source.is_dir():
        members = {f"{source.name}/{name}": file for name, file in tree_of(source).members.items()}
    inner = (_inside(replace(member, name=name)) for name, member in members.items())
    for number, member in enumerate(chain.from_iterable(inner)):
        if number >= MOST_FILES:
            raise _too_many(source)
        yield member


def _too_many(path: Path) -> DataError:
    return DataError(f"{path}: more than {MOST_FILES} files; name a smaller folder")


def _inside(member: Member) -> Iterator[Member]:
    if not member.name.lower().endswith(ZIP):
        name = member.name
        if name.lower().endswith(_GZIP):
            name = name[: -len(_GZIP)]
        yield replace(member, name=name)
        return
    if len(member.inner) >= DEEPEST:
        raise DataError(f"{member.where}: archives in more than {DEEPEST} others; unpack them")
    for name, inner in tree_of_zip(member).members.items():
        if not name.startswith(RESOURCE_FORKS):
            yield from _inside(inner)


def one_line(problem: BaseException) -> str:
    """Return what a library says, fit for the middle of a line."""
    return " ".join(str(problem).split()) or type(problem).__name__


def unreadable(path: Path, problem: OSError) -> DataError:
    """Return the error for a file that the system refuses."""
    return DataError(
        f"{path}: cannot be read ({problem.strerror}); check the file and its permissions"
    )


def open_zip(
    stream: IO[bytes], where: str, most_bytes: int = LARGEST_TOTAL_BYTES
) -> zipfile.ZipFile:
    """Open the archive in `stream`, which unpacks to at most `most_bytes`.

    Raises DataError naming `where`.
    """
    try:
        refuse_long_list(stream, where)
        archive = zipfile.ZipFile(stream)
    except ZIP_DAMAGE as problem:
        raise DataError(
            f"{where}: not a complete zip archive ({one_line(problem)}); it was probably cut short,"
            " fetch it again"
        ) from None
    try:
        refuse_unsafe(archive, where, most_bytes)
    except DataError:
        archive.close()
        raise
    return archive


def digest(tree: FileTree, names: Sequence[str], report: Report) -> str:
    """Return the SHA-256 (hex) over names, lengths and contents of some files of any size."""
    total = hashlib.sha256()
    for done, name in enumerate(names, start=1):
        member = tree.members[name]
        total.update(f"{name}\0{member.size}\0".encode())
        with member.open(packed=True) as raw:
            while piece := raw.read(CHUNK_BYTES):
                total.update(piece)
        report("hashing files", done, len(names))
    return total.hexdigest()


def file_digest(path: Path, report: Report = silent) -> str:
    """Return the SHA-256 (hex) of a file, as `sha256sum` prints it."""
    total = hashlib.sha256()
    done = 0
    try:
        with path.open("rb") as stream:
            size = path.stat().st_size
            while chunk := stream.read(CHUNK_BYTES):
                total.update(chunk)
                done += len(chunk)
                report("hashing", done, size)
    except OSError as problem:
        raise unreadable(path, problem) from None
    return total.hexdigest()


DIGEST_SUFFIX = ".sha256"
"""Ending of what `sha256sum FILE > FILE.sha256` writes, which every use of the file compares."""


def noted_digest(path: Path) -> tuple[str, str] | None:
    """Return the hash that stands beside a file, and where; None where none does."""
    beside = path.with_name(path.name + DIGEST_SUFFIX)
    if not beside.exists():
        return None
    fields = beside.read_text(encoding="utf-8", errors="replace").lower().split()
    return next(iter(fields), "nothing"), beside.name


def refuse_long_list(stream: IO[bytes], where: str) -> None:
    """Raise DataError for a zip whose list of files takes much time and memory to read."""
    end: Any = zipfile._EndRecData(stream)  # type: ignore[attr-defined]  # what ZipFile itself asks
    if end is not None and end[zipfile._ECD_SIZE] > LARGEST_LIST_BYTES:  # type: ignore[attr-defined]
        raise DataError(
            f"{where}: lists more files than any recordings have; pack fewer, or do not trust it"
        )


def refuse_unsafe(archive: zipfile.ZipFile, where: str, most_bytes: int) -> None:
    """Raise DataError for names twice, outside the archive or none, and for too large content."""
    total = 0
    entry_names = set[str]()
    for info in archive.infolist():
        if not info.filename:  # `zipfile` of Python 3.11 fails on it
            raise DataError(
                f"{where}: an entry of the archive has no name; fetch the archive again, or pack it"
                " again"
            )
        if info.filename in entry_names and not info.is_dir():
            raise DataError(
                f"{where}: has {info.filename!r:.100} twice, and one would hide the other; pack it"
                " again"
            )
        entry_names.add(info.filename)
        name = PurePosixPath(info.filename.replace("\\", "/"))
        if name.is_absolute() or ".." in name.parts:
            raise DataError(
                f"{where}: names a file outside the archive ({info.filename!r}); do not trust this"
                " archive"
            )
        total += info.file_size
        ratio = info.file_size / max(1, info.compress_size)
        if total > most_bytes or (info.file_size > SUSPICIOUS_BYTES and ratio > SUSPICIOUS_RATIO):
            raise DataError(
                f"{where}: {info.filename} unpacks to {info.file_size} bytes from"
                f" {info.compress_size}, which no recording does; do not trust this archive"
            )
