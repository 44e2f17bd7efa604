"""An app on its way to the coordinator's node: one archive, unpacked whole or not at all.

The digest of the files travels in the request, beside the archive: what is unpacked has to give it
again.
"""

import os
import tarfile
from pathlib import Path
from typing import BinaryIO

from cluster.apps.files import MOST_BYTES, MOST_FILES, AppFiles, files_of_app
from core.ground.errors import ClusterError
from core.ground.files import NO_LINK, whole_folder
from core.ground.parcel import RefusedArchive, bounded_tar, extract, tar_of

_BLOCK_BYTES = 1 << 20
MOST_ARCHIVE_BYTES = MOST_BYTES + MOST_FILES * (8 << 10) + _BLOCK_BYTES
"""Headers, long names and padding of each file, and the end."""
_AGAIN = "submit the job again"


def pack(app: AppFiles) -> bytes:
    """The archive of the files; the same files give the same bytes.

    Raises UsageError if one has changed meanwhile.
    """
    return tar_of((file.name, app.content(file)) for file in app.files)


def unpack(archive: Path, digest: str, into: Path) -> None:
    """Unpack the files of the app into the folder `into`, and remove the archive.

    Takes only plain files with plain names, and no more than an app has. Raises ClusterError, and
    leaves no folder, where the archive is damaged or the files are not those of `digest`.
    """
    try:
        descriptor = os.open(archive, NO_LINK)
        with os.fdopen(descriptor, "rb") as stream, whole_folder(into, 0o750) as partial:
            if os.fstat(descriptor).st_size > MOST_ARCHIVE_BYTES:
                raise RefusedArchive(f"it has more than {MOST_ARCHIVE_BYTES} bytes")
            _take_all(stream, partial)
            actual_digest = files_of_app(partial).digest
            if actual_digest != digest:
                raise RefusedArchive(
                    f"expected files with the digest {digest:.16}, got {actual_digest:.16}"
                )
        archive.unlink()
    except (
        OSError,
        EOFError,
        ValueError,
        OverflowError,
        tarfile.TarError,
        ClusterError,
    ) as problem:
        raise ClusterError(f"{archive}: the app cannot be unpacked: {problem}: {_AGAIN}") from None


def _take_all(stream: BinaryIO, partial: Path) -> None:
    room_bytes = MOST_BYTES
    with bounded_tar(stream, MOST_ARCHIVE_BYTES) as entries:
        for count, entry in enumerate(entries, start=1):
            room_bytes -= entry.size
            if count > MOST_FILES or room_bytes < 0:
                raise RefusedArchive(
                    f"an app has at most {MOST_FILES:,} files and {MOST_BYTES >> 20} MiB"
                )
            extract(entries, entry, partial, entry.name)
