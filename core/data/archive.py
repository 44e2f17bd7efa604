"""Files of a source by name, whether they lie in a folder or in a zip.

Nothing is ever unpacked to disk.
"""

import hashlib
import lzma
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any

from core.data.recordings import Report, silent
from core.ground.errors import DataError

LARGEST_TEXT_BYTES = 512 * 2**20
"""A recording or label file larger than this is refused: the largest published one has 17 MB."""
LARGEST_TOTAL_BYTES = 4 * 2**30
"""What a zip may unpack to in all, nine times the largest set that is read from one."""
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
"""What zipfile raises over damaged archives: its documentation promises BadZipFile, its
decompressors do not."""


class FolderTree:
    """A folder on disk: named files below one root. Names are relative and use slashes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.where = str(folder)
        """How errors name the source."""

    def names(self) -> tuple[str, ...]:
        """Every file, sorted, in linked folders too.

        Raises DataError for a folder that cannot be listed, or comes twice.
        """
        paths = []
        places = set[tuple[int, int]]()
        for parent, _, files in os.walk(self._folder, onerror=_refuse, followlinks=True):
            about = os.stat(parent)
            place = about.st_dev, about.st_ino
            if place in places:
                raise DataError(
                    f"{parent}: a link leads to a folder that is here already, whose files would"
                    " come twice; remove it"
                )
            places.add(place)
            paths += [Path(parent) / file for file in files]
        return tuple(sorted(path.relative_to(self._folder).as_posix() for path in paths))

    def read(self, name: str) -> bytes:
        """Content of one file. Raises DataError when it is missing or too large."""
        path = self._folder / name
        with _regular(self.where, path, name) as stream:
            if os.fstat(stream.fileno()).st_size > LARGEST_TEXT_BYTES:
                raise DataError(
                    f"{path}: larger than {LARGEST_TEXT_BYTES} bytes, which no recording is;"
                    " remove it"
                )
            return stream.read()

    def pieces(self, name: str) -> Iterator[bytes]:
        """Yield what `digest` takes of a file of any size: name, length, content."""
        with _regular(self.where, self._folder / name, name) as stream:
            yield f"{name}\0{os.fstat(stream.fileno()).st_size}\0".encode()
            while piece := stream.read(CHUNK_BYTES):
                yield piece


def _refuse(problem: OSError) -> None:
    raise unreadable(Path(problem.filename), problem)


@contextmanager
def _regular(where: str, path: Path, name: str) -> Iterator[IO[bytes]]:
    """Open a file. Raises DataError for a missing one, and for what is no file."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise DataError(
                f"{path}: expected a file, got something else of that name; restore it from the"
                " original"
            )
        with path.open("rb") as stream:
            yield stream
    except FileNotFoundError:
        raise missing(where, name) from None
    except OSError as problem:
        raise unreadable(path, problem) from None


class ZipTree:
    """A zip archive below the folder `prefix` inside it."""

    def __init__(self, archive: zipfile.ZipFile, where: str, prefix: str = "") -> None:
        self._archive = archive
        self._prefix = prefix
        self.where = where

    def names(self) -> tuple[str, ...]:
        """Every file below the prefix, sorted."""
        files = (info.filename for info in self._archive.infolist() if not info.is_dir())
        return tuple(
            sorted(
                name.removeprefix(self._prefix) for name in files if name.startswith(self._prefix)
            )
        )

    def below(self, prefix: str) -> "ZipTree":
        """Return the archive as a folder inside it sees it."""
        return ZipTree(self._archive, self.where, self._prefix + prefix)

    def read(self, name: str) -> bytes:
        """Content of one file. Raises DataError when it is missing, damaged or too large."""
        try:
            info = self._archive.getinfo(self._prefix + name)
        except KeyError:
            raise missing(self.where, name) from None
        if info.file_size > LARGEST_TEXT_BYTES:
            raise DataError(
                f"{self.where}: {name}: unpacks to {info.file_size} bytes, more than any recording;"
                " refused"
            )
        try:
            return self._archive.read(info)
        except ZIP_DAMAGE as problem:
            raise DataError(
                f"{self.where}: {name}: damaged in the archive ({one_line(problem)}); fetch the"
                " archive again"
            ) from None

    def pieces(self, name: str) -> Iterator[bytes]:
        """Yield what `digest` takes of a file: name, length, content."""
        content = self.read(name)
        yield f"{name}\0{len(content)}\0".encode()
        yield content


Tree = FolderTree | ZipTree


def one_line(problem: BaseException) -> str:
    """What a library says, fit for the middle of a line."""
    return " ".join(str(problem).split()) or type(problem).__name__


def missing(where: str, name: str) -> DataError:
    """The error for a file the source should have."""
    return DataError(f"{where}: {name} is missing; restore it from the original")


def unreadable(path: Path, problem: OSError) -> DataError:
    """The error for a file that the system does not give."""
    return DataError(
        f"{path}: cannot be read ({problem.strerror}); check the file and its permissions"
    )


@contextmanager
def open_tree(path: Path) -> Iterator[Tree]:
    """The files of a folder or zip at `path`.

    Raises DataError when it is neither, or an archive that is truncated, names files outside
    itself, or unpacks to more than any recording does.
    """
    if path.is_dir():
        yield FolderTree(path)
        return
    try:
        stream = path.open("rb")
    except OSError as problem:
        raise DataError(
            f"{path}: cannot be opened ({problem.strerror}); check the path and its permissions"
        ) from None
    with stream, open_zip(stream, str(path)) as archive:
        yield ZipTree(archive, str(path))


def open_zip(
    stream: IO[bytes], where: str, most_bytes: int = LARGEST_TOTAL_BYTES
) -> zipfile.ZipFile:
    """The archive in `stream`, which unpacks to at most so many bytes.

    Raises DataError naming `where`, as `open_tree` does.
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


def digest(tree: Tree, names: Sequence[str], report: Report) -> str:
    """SHA-256 (hex) over names and contents of some files."""
    total = hashlib.sha256()
    for done, name in enumerate(names, start=1):
        for piece in tree.pieces(name):
            total.update(piece)
        report("hashing files", done, len(names))
    return total.hexdigest()


def file_digest(path: Path, report: Report = silent) -> str:
    """SHA-256 (hex) of a file, as `sha256sum` prints it."""
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


def refuse_long_list(stream: IO[bytes], where: str) -> None:
    """Raise DataError for a zip whose list of files takes much time and memory to read."""
    end: Any = zipfile._EndRecData(stream)  # type: ignore[attr-defined]  # what ZipFile itself asks
    if end is not None and end[zipfile._ECD_SIZE] > LARGEST_LIST_BYTES:  # type: ignore[attr-defined]
        raise DataError(
            f"{where}: lists more files than any recordings have; pack fewer, or do not trust it"
        )


def refuse_nameless(archive: zipfile.ZipFile, where: str) -> None:
    """Raises DataError for an entry without a name: `zipfile` of Python 3.11 fails on it."""
    if any(not info.filename for info in archive.infolist()):
        raise DataError(
            f"{where}: an entry of the archive has no name; fetch the archive again, or pack it"
            " again"
        )


def refuse_unsafe(archive: zipfile.ZipFile, where: str, most_bytes: int) -> None:
    """Raise DataError for names twice or outside the archive, and for what unpacks to too much."""
    refuse_nameless(archive, where)
    total = 0
    files = set[str]()
    for info in archive.infolist():
        if info.filename in files and not info.is_dir():
            raise DataError(
                f"{where}: has {info.filename!r:.100} twice, and one would hide the other; pack it"
                " again"
            )
        files.add(info.filename)
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
