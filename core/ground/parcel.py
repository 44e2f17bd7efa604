"""Plain files in and out of a tar, within bounds where another machine or account made it.

A file is unpacked once, below its folder, and nothing of it but its content and time is taken. The
data filter of `tarfile` (PEP 706) is no help: Python 3.11.2, that of Debian 12, has none.
"""

import contextlib
import io
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Protocol

MOST_NAME_BYTES = 255
LEFT_FREE_BYTES = 512 << 20
"""Room that this machine keeps for itself."""
_BLOCK_BYTES = 1 << 20
_LATEST = 1 << 33
"""The latest time of a file, in the year 2242."""


class RefusedArchive(tarfile.TarError):
    """The archive holds something that none of its kind has; the message names it."""


class _Stream(Protocol):
    def read(self, count: int = -1, /) -> bytes: ...

    def seek(self, position: int, whence: int = 0, /) -> int: ...

    def tell(self) -> int: ...


class BoundedStream:
    """A stream for tarfile that ends after so many bytes, and refuses a name of megabytes."""

    def __init__(self, stream: _Stream, most_bytes: int) -> None:
        self._stream = stream
        self._most_bytes = most_bytes

    def read(self, count: int = -1) -> bytes:
        """Raises RefusedArchive where tarfile asks for more than a block at once."""
        if not 0 <= count <= _BLOCK_BYTES:
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
        while chunk := stream.read(min(_BLOCK_BYTES, most_bytes + 1 - file.tell())):
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
            shutil.copyfileobj(content, file, _BLOCK_BYTES)
    except FileExistsError:
        raise RefusedArchive(f"{name!r:.80} is there twice") from None
    if 0 < member.mtime <= _LATEST:
        os.utime(path, (member.mtime, member.mtime))


def tar_of(files: Iterable[tuple[str, bytes]]) -> bytes:
    """Return a tar of files by name; the same files give the same bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in files:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
