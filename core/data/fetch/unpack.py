"""The one file of an archive that is wanted, streamed beside the archive.

It is bounded, and whole or absent.
"""

import os
import zipfile
from pathlib import Path, PurePosixPath

from core.data.archive import CHUNK_BYTES, ZIP_DAMAGE, one_line, open_zip
from core.data.fetch.download import opened_alone, write_whole
from core.data.recordings import Report
from core.ground.errors import DataError

WHOLE_ARCHIVE = 4
"""Factor of the bound of one file for all of the archive: HHAR has four tables in one."""


def unpack(archive: Path, member: str, path: Path, most_bytes: int, report: Report) -> None:
    """Write the archive's file of this name, in whatever folder it lies there, to `path`.

    Raises DataError.
    """
    with (
        archive.open("rb") as stream,
        open_zip(stream, str(archive), WHOLE_ARCHIVE * most_bytes) as opened,
    ):
        entries = [
            info for info in opened.infolist() if PurePosixPath(info.filename).name == member
        ]
        entries = [info for info in entries if not info.filename.startswith("__MACOSX/")]
        if len(entries) != 1:
            raise DataError(
                f"{archive}: expected one {member}, got {len(entries)}; fetch the archive again"
            )
        if entries[0].file_size > most_bytes:
            raise DataError(
                f"{archive}: {entries[0].filename} unpacks to {entries[0].file_size} bytes, more"
                f" than {most_bytes}; do not trust this archive"
            )
        _write(opened, entries[0], path, report)


def _write(opened: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path, report: Report) -> None:
    done = 0
    partial = path.with_name(f".{path.name}.part")
    with opened_alone(partial) as target:
        try:
            target.truncate(0)  # what a killed process left
            with opened.open(info) as source:
                while chunk := source.read(CHUNK_BYTES):
                    done += len(chunk)
                    if done > info.file_size:
                        raise DataError(
                            f"{opened.filename}: {info.filename}: longer than it says; do not"
                            " trust it"
                        )
                    write_whole(target, chunk)
                    report("unpacking", done, info.file_size)
            os.fsync(target.fileno())
            partial.rename(path)
        except ZIP_DAMAGE as problem:
            raise DataError(
                f"{path}: cannot be unpacked ({one_line(problem)}); free some space, or fetch the"
                " archive again"
            ) from None
        finally:
            partial.unlink(missing_ok=True)
