"""Plain files in and out of a tar, within bounds where another machine or account made it.

A file is unpacked once, below its folder, and nothing of it but its content and time is taken. The
data filter of `tarfile` (PEP 706) is no help: Python 3.11.2, that of Debian 12, has none.
"""

import contextlib
import gzip
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Protocol

from core.ground.errors import ClusterError, reason_of
from core.ground.files import of_disk, remedy_of, whole_folder, write_refusal

MOST_NAME_BYTES = 255
LEFT_FREE_BYTES = 512 << 20
"""Room that this machine keeps for itself."""
BLOCK_BYTES = 1 << 20
_LATEST = 1 << 33
"""The latest time of a file, in the year 2242."""


class RefusedArchive(tarfile.TarError):
    """The archive holds something that none of its kind has; the message names it."""


class Readable(Protocol):
    """What is read from its beginning to its end."""

    def read(self, count: int = -1, /) -> bytes:
        """Return the next bytes, none at the end."""


class _Stream(Readable, Protocol):
    def seek(self, position: int, whence: int = 0, /) -> int: ...

    def tell(self) -> int: ...


class BoundedStream:
    """A stream for tarfile that ends after so many bytes, and refuses a name of megabytes."""

    def __init__(self, stream: _Stream, most_bytes: int) -> None:
        self._stream = stream
        self._most_bytes = most_bytes

    def read(self, count: int = -1) -> bytes:
        """Raises RefusedArchive where tarfile asks for more than a block at once."""
        if not 0 <= count <= BLOCK_BYTES:
            raise RefusedArchive("an entry's name or attributes are longer than any of ours")
        self._check(self._stream.tell() + count)
        return self._stream.read(count)

    def seek(self, position: int, whence: int = os.SEEK_SET) -> int:
        """Raises RefusedArchive beyond the bound."""
        self._check(position)
        return self._stream.seek(position, whence)

    def tell(self) -> int:
        """Return the position in the unpacked bytes."""
        return self._stream.tell()

    def _check(self, position: int) -> None:
        if position > self._most_bytes:
            raise RefusedArchive(f"it unpacks to more than {self._most_bytes} bytes")


def room_on_disk(folder: Path) -> int:
    """Return how many bytes what others send may take on the disk of this folder, which exists.

    Raises OSError.
    """
    return max(0, shutil.disk_usage(folder).free - LEFT_FREE_BYTES)


def bounded_tar(stream: _Stream, most_bytes: int) -> tarfile.TarFile:
    """Open the tar in the stream. Its entries raise RefusedArchive beyond the bounds."""
    bounded: Any = BoundedStream(stream, most_bytes)
    return tarfile.open(fileobj=bounded, mode="r:")


@contextlib.contextmanager
def piped_tar(stream: BinaryIO, most_bytes: int) -> Iterator[tarfile.TarFile]:
    """Open the tar that comes through a pipe; it lies in a file without a name meanwhile.

    Raises RefusedArchive for more bytes, as its entries do beyond the bounds; OSError.
    """
    with tempfile.TemporaryFile() as file:
        while chunk := stream.read(min(BLOCK_BYTES, most_bytes + 1 - file.tell())):
            file.write(chunk)
        if file.tell() > most_bytes:
            raise RefusedArchive(f"it has more than {most_bytes} bytes")
        file.seek(0)
        with bounded_tar(file, most_bytes) as archive:
            yield archive


def is_plain_name(part: str) -> bool:
    """Return whether a part of a path is the name of a file or folder, and can be printed."""
    return (
        part not in ("", "/", ".", "..")
        and part.isprintable()
        and len(os.fsencode(part)) <= MOST_NAME_BYTES
    )


def is_plain_file(member: tarfile.TarInfo) -> bool:
    """Return whether the entry is a file with its own content: no link, no device, no holes."""
    return member.isreg() and not member.issparse()


def extract(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: Path, name: str) -> None:
    """Write one plain file as the new file `name` below `folder`, which holds no links.

    `name` is a relative path; folders on it are made. Raises RefusedArchive where it leads
    elsewhere, where that file is there already, and for what is no plain file; tarfile.TarError,
    OSError.
    """
    segments = PurePosixPath(name).parts
    if is_plain_file(member) and segments and all(map(is_plain_name, segments)):
        content = archive.extractfile(member)
    else:
        content = None
    if content is None:
        raise RefusedArchive(f"{name!r:.80} is no plain file with a plain name")
    path = folder.joinpath(*segments)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with content, path.open("xb") as file:
            shutil.copyfileobj(content, file, BLOCK_BYTES)
    except FileExistsError:
        raise RefusedArchive(f"{name!r:.80} is there twice") from None
    if 0 < member.mtime <= _LATEST:
        os.utime(path, (member.mtime, member.mtime))


MOST_RATIO = 100
"""The ratio of unpacked to packed bytes: logs shrink to a tenth, weights hardly at all."""
FREE_BYTES = 64 << 20
"""Allowed whatever the ratio: a short log that repeats one line is no attack."""

_DAMAGED = (
    OSError,
    EOFError,
    tarfile.TarError,
    zlib.error,
    ValueError,
    OverflowError,
    RecursionError,
)
"""Errors of a damaged archive: of gzip, of tarfile and those that it raises beside its own."""


@dataclass(frozen=True)
class ParcelKind:
    """What a packed folder of one kind holds at most.

    `refusal` begins the error for another one, `remedy` ends it.
    """

    refusal: str
    remedy: str
    most_entries: int
    most_bytes: int


Content = bytes | BinaryIO
"""Bytes, or a file that holds them."""


def blocks_of(content: Content) -> Iterator[bytes]:
    """Yield the content in blocks; threads may read the same file. Raises OSError."""
    if isinstance(content, bytes):
        yield content
        return
    position = 0
    while block := os.pread(content.fileno(), BLOCK_BYTES, position):
        yield block
        position += len(block)


FileToPack = tuple[str, int, Readable]
"""Its name in the archive, its bytes, and what reads them."""


@dataclass(frozen=True)
class _FileStream:
    path: Path
    file: BinaryIO

    def read(self, count: int = -1, /) -> bytes:
        """Return so many bytes. Raises ClusterError, which names the file."""
        try:
            block = self.file.read(count)
        except OSError as problem:
            raise _unreadable(self.path, problem) from None
        if len(block) < count:
            raise _changed(self.path)
        return block


def _unreadable(path: Path, problem: OSError) -> ClusterError:
    return ClusterError(f"{path}: cannot be read: {reason_of(problem)}")


def _changed(path: Path) -> ClusterError:
    return ClusterError(f"{path}: has changed while it was packed: run it again")


def opened(files: Mapping[str, tuple[Path, int]]) -> Iterator[FileToPack]:
    """Open each file, by its name in the archive; beside its path is its size as it was seen.

    Raises ClusterError for a file that cannot be read, or has another size by its end.
    """
    for name, (path, size_bytes) in files.items():
        try:
            file = path.open("rb")
        except OSError as problem:
            raise _unreadable(path, problem) from None
        with file:
            yield name, size_bytes, _FileStream(path, file)
            if os.fstat(file.fileno()).st_size != size_bytes:
                raise _changed(path)


@contextlib.contextmanager
def packed(files: Iterable[FileToPack], compressed: bool = True) -> Iterator[BinaryIO]:
    """A tar of files in a file without a name; the same files give the same bytes.

    Raises ClusterError where this machine cannot keep it, and what reading a file raises.
    """
    with contextlib.ExitStack() as resources:
        try:
            archive = resources.enter_context(tempfile.TemporaryFile())
            if compressed:
                with gzip.GzipFile("", "wb", fileobj=archive, mtime=0) as tar:
                    _write_tar(tar, files)
            else:
                _write_tar(archive, files)
            archive.flush()
        except OSError as problem:
            with contextlib.suppress(OSError):
                resources.close()  # which writes what is left, on the same disk
            place = Path(tempfile.tempdir or os.environ.get("TMPDIR", "/tmp"))
            what = "what travels cannot be packed there"
            raise write_refusal(place, what, problem, "name another folder in $TMPDIR") from None
        yield archive


def _write_tar(stream: Any, files: Iterable[FileToPack]) -> None:
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as entries:
        for name, size_bytes, content in files:
            entry = tarfile.TarInfo(name)
            entry.size = size_bytes
            entries.addfile(entry, content)


def unpack_folder(
    archive: BinaryIO,
    name: str,
    into: Path,
    kind: ParcelKind,
    checked: Callable[[Path], None] = lambda unpacked: None,
    most_bytes_of: Callable[[Sequence[str]], int] | None = None,
) -> Path:
    """Unpack an archive of the folder `name` to `into/name`, replacing what is there; its path.

    `checked` gets the unpacked folder before anything is replaced, and refuses it by raising
    ClusterError. `most_bytes_of` says of the segments of a file's path how long it may be;
    with 0 it is left out.

    Takes only plain files and folders below that folder, and no more of them than the kind has: an
    archive from another machine writes nowhere else and fills no disk, which is looked at before
    each file. Raises ClusterError when it is damaged, larger than that, or the place cannot be
    written; the three have different causes in it.
    """
    target = into / name
    if PurePosixPath(name).parts != (name,) or not is_plain_name(name):
        raise ClusterError(f"{into}: {kind.refusal}: {name!r}: expected the plain name of a folder")
    try:
        into.mkdir(parents=True, exist_ok=True)
        with whole_folder(target) as partial:
            try:
                _unpack_entries(archive, name, partial, kind, most_bytes_of)
            except RefusedArchive as error:
                raise ClusterError(f"{target}: {kind.refusal}: {error}; {kind.remedy}") from error
            except _DAMAGED as error:
                if isinstance(error, OSError) and of_disk(error):
                    raise
                raise ClusterError(
                    f"{target}: {kind.refusal}: the archive is damaged: {reason_of(error)};"
                    f" {kind.remedy}"
                ) from error
            checked(partial)
    except OSError as error:
        raise ClusterError(
            f"{target}: {kind.refusal}: {reason_of(error)}: {remedy_of(target, error)};"
            f" {kind.remedy}"
        ) from error
    return target


def _unpack_entries(
    archive: BinaryIO,
    name: str,
    partial: Path,
    kind: ParcelKind,
    most_bytes_of: Callable[[Sequence[str]], int] | None,
) -> None:
    """Unpack every entry. Raises RefusedArchive beyond the bounds."""
    packed_bytes = archive.seek(0, os.SEEK_END)
    archive.seek(0)
    room = room_on_disk(partial)
    most_bytes = min(kind.most_bytes, max(FREE_BYTES, MOST_RATIO * packed_bytes))
    with gzip.open(archive) as unpacked, bounded_tar(unpacked, most_bytes) as members:
        for count, member in enumerate(members, start=1):
            if count > kind.most_entries:
                raise RefusedArchive(f"expected at most {kind.most_entries} files, there are more")
            top, *segments = PurePosixPath(member.name).parts or ("",)
            if top != name or not all(map(is_plain_name, segments)):
                continue
            if member.isdir():
                partial.joinpath(*segments).mkdir(parents=True, exist_ok=True)
            elif is_plain_file(member):
                most = kind.most_bytes
                if most_bytes_of is not None:
                    most = most_bytes_of(segments)
                if not most:
                    continue
                if member.size > most:
                    raise RefusedArchive(
                        f"{member.name:.200}: expected at most {most:,} bytes, got {member.size:,}"
                    )
                room -= member.size
                if room < 0:
                    raise RefusedArchive("its files would fill this disk: free some of it")
                extract(members, member, partial, "/".join(segments))
