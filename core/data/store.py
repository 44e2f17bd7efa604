"""The cache of prepared data sets: complete folders or none, also with several processes at once.

Each process writes a folder of its own and renames it into place. There is no lock to be left
behind: two processes that prepare the same source do the work twice, and the second finds the first
one's result.
"""

import errno
import json
import os
import re
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from core.data.columns import Columns
from core.data.dataset import MANIFEST, NOT_SAID, Dataset, HeldOut
from core.data.manifest import manifest_of, open_prepared
from core.data.signals import UNKNOWN, Signals
from core.ground.errors import DataError

PARTIAL = ".partial-"
SHORT_KEY = 16
"""Hexadecimal digits of the key in a folder's name: 64 bits."""


@dataclass(frozen=True)
class Origin:
    """Where a set comes from, as its manifest says it.

    Names, a hash of the source's bytes, the settings.
    """

    name: str
    source: str
    source_sha256: str = ""
    preparation: Mapping[str, Any] = field(default_factory=dict)
    held_out: HeldOut = NOT_SAID
    signals: Signals = UNKNOWN
    """Facts that the source itself states, beside the settings."""


@contextmanager
def partial_folder(cache: Path) -> Iterator[Path]:
    """A folder in `cache` that is gone afterwards, unless `publish` gave it its name.

    Raises DataError.
    """
    with writing_to(cache):
        cache.mkdir(parents=True, exist_ok=True)
        _sweep(cache)
        partial = Path(
            tempfile.mkdtemp(prefix=f"{PARTIAL}{socket.gethostname()}@{os.getpid()}-", dir=cache)
        )
    try:
        yield partial
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Raise DataError, with a remedy, for what the disk of this folder does not take.

    The folder is one in the cache, or the cache.
    """
    try:
        yield
    except OSError as problem:
        if folder.name.startswith(PARTIAL):
            cache, room = (folder.parent, _room(folder))
        else:
            cache, room = (folder, "some room")
        raise DataError(
            f"{cache}: the prepared data cannot be written ({problem.strerror}); free {room} or"
            " choose another cache folder"
        ) from problem


def _room(partial: Path) -> str:
    try:
        written = sum(path.stat().st_size for path in partial.iterdir())
    except OSError:
        return "some room"
    if written >> 20:
        return f"more than the {written >> 20} MiB that it took"
    return "some room"


def publish_columns(
    columns: Columns, labels: tuple[str, ...], origin: Origin, folder: Path | None
) -> Dataset:
    """Writes the manifest of finished columns, gives their folder its name, and opens it.

    For None the name is that of the source and of the content. A sound data set already there is
    kept.
    """
    partial = columns.folder
    dataset = columns.dataset(labels, origin.name, origin.source, origin.source_sha256)
    leaks = [leak for leak in (origin.held_out.leak, shared_rows(dataset)) if leak]
    held_out = replace(origin.held_out, leak="; ".join(leaks))
    dataset = replace(dataset, held_out=held_out, signals=origin.signals)
    with (partial / MANIFEST).open("w", encoding="utf-8") as stream:
        json.dump(manifest_of(dataset, columns.digests, origin.preparation), stream, indent=2)
        stream.flush()
        os.fsync(stream.fileno())
    with suppress(PermissionError):  # in the cage of an export: jobs of root then copy the windows
        partial.chmod(0o755)
    _sync_folder(partial)
    place = folder or partial.parent / f"{short_name(origin.name)}-{dataset.sha256[:SHORT_KEY]}"
    _rename(partial, place)
    return open_prepared(place)


def shared_rows(dataset: Dataset) -> str:
    """Return a line about test examples that are training examples too; empty without any."""
    train = dataset.train_windows
    digests = np.fromiter(
        (hash(row.tobytes()) for row in np.asarray(dataset.windows())), np.int64, dataset.rows
    )
    count = np.count_nonzero(np.isin(digests[train:], digests[:train]))
    if not count:
        return ""
    return (
        f"{count:,} of {dataset.test_windows:,} test {dataset.unit} are training ones too, so its"
        " figures promise too much; remove the copies"
    )


def short_name(name: str) -> str:
    """A short stand-in for a name that may hold anything a file's name may."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:40]


def _rename(partial: Path, folder: Path) -> None:
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
            # Moved, not deleted in place: a reader either has the old files open or finds a whole
            # folder.
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
