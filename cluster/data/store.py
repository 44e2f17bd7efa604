"""The cache of prepared data sets: complete folders or none, also with several processes at once.

Each process writes a folder of its own and renames it into place. There is no lock to be left behind: two processes
that prepare the same source do the work twice, and the second finds the first one's result.
"""

import errno
import hashlib
import json
import os
import shutil
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster.data.archive import CHUNK_BYTES
from cluster.data.dataset import (
    CLASSES,
    FORMAT_VERSION,
    MANIFEST,
    SUBJECTS,
    WINDOWS,
    Dataset,
    content_digest,
    open_prepared,
)
from cluster.data.recordings import Recordings, Report
from cluster.errors import DataError

PARTIAL = ".partial-"


def store(recordings: Recordings, folder: Path, about: Mapping[str, Any], report: Report) -> Dataset:
    """Writes recordings as the prepared data set `folder`, all or nothing, and opens it.

    `about` gives `name`, `source`, `source_sha256` and `preparation`, the settings it was made with. A sound data set
    already there is kept, a damaged one replaced.
    Raises DataError when the cache cannot be written.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _sweep(folder.parent)
        partial = Path(tempfile.mkdtemp(prefix=f"{PARTIAL}{socket.gethostname()}@{os.getpid()}-", dir=folder.parent))
        try:
            _write(recordings, partial, about, report)
            _publish(partial, folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except OSError as problem:
        raise DataError(
            f"{folder.parent}: the prepared data cannot be written ({problem.strerror}); free "
            f"{recordings.windows.nbytes >> 20} MiB or choose another cache folder"
        ) from problem
    return open_prepared(folder)


def _write(recordings: Recordings, partial: Path, about: Mapping[str, Any], report: Report) -> None:
    arrays = {
        WINDOWS: recordings.windows.astype("<f4", copy=False),
        CLASSES: recordings.classes.astype("<i4", copy=False),
        SUBJECTS: recordings.subjects.astype("<i4", copy=False),
    }
    files = {name: _write_array(array, partial / name, report) for name, array in arrays.items()}
    count, steps, channels = recordings.windows.shape
    manifest: dict[str, Any] = {
        "format": FORMAT_VERSION,
        **about,
        "labels": recordings.labels,
        "window_steps": steps,
        "channels": channels,
        "train_windows": recordings.train_windows,
        "test_windows": recordings.test_windows,
        "files": files,
        "sha256": content_digest(files, recordings.labels, (count, steps, channels), recordings.train_windows),
    }
    with (partial / MANIFEST).open("w", encoding="utf-8") as stream:
        json.dump(manifest, stream, indent=2)
        stream.flush()
        os.fsync(stream.fileno())
    partial.chmod(0o755)
    _sync_folder(partial)


def _write_array(array: NDArray[Any], path: Path, report: Report) -> str:
    content = np.ascontiguousarray(array).view(np.uint8).reshape(-1).data
    digest = hashlib.sha256(content)
    with path.open("wb") as stream:
        for start in range(0, len(content), CHUNK_BYTES):
            stream.write(content[start : start + CHUNK_BYTES])
            report("writing", min(start + CHUNK_BYTES, len(content)), len(content))
        stream.flush()
        os.fsync(stream.fileno())
    return digest.hexdigest()


def _publish(partial: Path, folder: Path) -> None:
    while True:
        try:
            partial.rename(folder)
        except OSError as problem:
            if problem.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
        else:
            _sync_folder(folder.parent)
            return
        try:
            open_prepared(folder)
        except DataError:
            # Moved, not deleted in place: a reader either has the old files open or finds a whole folder.
            aside = Path(tempfile.mkdtemp(prefix=partial.name + "-damaged-", dir=folder.parent))
            try:
                folder.rename(aside / folder.name)
            except FileNotFoundError:
                pass
            finally:
                shutil.rmtree(aside, ignore_errors=True)
        else:
            return


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sweep(cache: Path) -> None:
    """Removes what killed processes of this machine left behind."""
    prefix = f"{PARTIAL}{socket.gethostname()}@"
    for path in cache.glob(f"{PARTIAL}*"):
        if not path.name.startswith(prefix):
            continue
        owner = path.name.removeprefix(prefix).split("-")[0]
        if owner.isdecimal() and not Path(f"/proc/{owner}").exists():
            shutil.rmtree(path, ignore_errors=True)
