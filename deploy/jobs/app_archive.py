"""An app on its way to the coordinator's node: one plain archive of its files, unpacked there whole or not at all.

The digest of the files travels in the request, beside the archive: what is unpacked has to give it again.
"""

import io
import os
import shutil
import tarfile
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from cluster.apps.files import MOST_BYTES, MOST_FILES, MOST_NAME_BYTES, AppFiles, look
from cluster.errors import ClusterError

_BLOCK_BYTES = 1 << 20
MOST_ARCHIVE_BYTES = MOST_BYTES + MOST_FILES * (8 << 10) + _BLOCK_BYTES
"""Headers, long names and padding of each file, and the end."""
_AGAIN = "submit the job again"


class _Damaged(Exception):
    """The archive is none of an app; the message names the reason."""


def pack(app: AppFiles) -> bytes:
    """The archive of the files; the same files give the same bytes. Raises UsageError if one has changed meanwhile."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for file in app.files:
            content = app.content(file)
            entry = tarfile.TarInfo(file.name)
            entry.size, entry.mode = len(content), 0o644
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def unpack(archive: Path, digest: str, into: Path) -> None:
    """Unpack the files of the app into the new folder `into`, and remove the archive.

    Takes only plain files with plain names, and no more than an app has. Raises ClusterError, and leaves no folder,
    where the archive is damaged or the files are not those of `digest`.
    """
    partial = into.with_name(f".{into.name}.{os.getpid()}.partial")
    try:
        try:
            descriptor = os.open(archive, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as stream:
                if os.fstat(descriptor).st_size > MOST_ARCHIVE_BYTES:
                    raise _Damaged(f"it has more than {MOST_ARCHIVE_BYTES} bytes")
                partial.mkdir(mode=0o750)
                _take_all(stream, partial)
            found = look(partial).digest
            if found != digest:
                raise _Damaged(f"expected files with the digest {digest:.16}, got {found:.16}")
            partial.rename(into)
            archive.unlink()
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except (_Damaged, OSError, EOFError, ValueError, OverflowError, tarfile.TarError, ClusterError) as problem:
        raise ClusterError(f"{archive}: the app cannot be unpacked: {problem}: {_AGAIN}") from None


def _take_all(stream: BinaryIO, partial: Path) -> None:
    room_bytes = MOST_BYTES
    with tarfile.open(fileobj=stream, mode="r:") as entries:
        for count, entry in enumerate(entries, start=1):
            room_bytes -= entry.size
            if count > MOST_FILES or room_bytes < 0:
                raise _Damaged(f"an app has at most {MOST_FILES:,} files and {MOST_BYTES >> 20} MiB")
            _take(entries, entry, partial)


def _take(entries: tarfile.TarFile, entry: tarfile.TarInfo, partial: Path) -> None:
    parts = PurePosixPath(entry.name).parts
    content: Any = entries.extractfile(entry) if entry.isfile() and not entry.issparse() else None
    if content is None or not parts or not all(map(_is_plain, parts)):
        raise _Damaged(f"{entry.name!r:.80} is no plain file with a plain name")
    path = partial.joinpath(*parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    with content, path.open("xb") as made:
        shutil.copyfileobj(content, made, _BLOCK_BYTES)


def _is_plain(part: str) -> bool:
    return part not in ("/", ".", "..") and part.isprintable() and len(os.fsencode(part)) <= MOST_NAME_BYTES
