"""From a source to a prepared data set, through the cache."""

import functools
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from cluster.data import hapt, npz, synthetic, uci_har
from cluster.data.archive import FolderTree, ZipTree, digest, file_digest
from cluster.data.dataset import Dataset, open_prepared
from cluster.data.layout import Layout, open_set
from cluster.data.progress import Report, silent
from cluster.data.published import open_published
from cluster.data.recordings import Recordings, check
from cluster.data.source import Source
from cluster.data.store import store
from cluster.errors import DataError

CHECKSUM_SUFFIX = ".sha256"
"""What `sha256sum FILE > FILE.sha256` leaves beside a file is held against the file."""
SHORT_KEY = 16
"""Hexadecimal digits of the key in a folder's name: 64 bits."""


@dataclass(frozen=True)
class Work:
    """What one kind of source comes down to: a name, the settings that decide the result, and two ways to read it."""

    name: str
    settings: Mapping[str, int]
    digest: Callable[[], str]
    read: Callable[[], Recordings]


def prepare(
    source: Source,
    *,
    window_steps: int = 128,
    window_stride: int = 64,
    cache: Path,
    seed: int = 0,
    progress: Report | None = None,
) -> Dataset:
    """Windows of `source`, prepared in or re-used from the folder `cache`.

    The prepared folder is named after a hash of the source's bytes, the parameters and this package's own code: what
    changed is prepared again, what did not is not, wherever the source lies. `seed` matters to synthetic recordings
    only. `progress` is called with a stage, what is done and what there is in all. A source that is a prepared folder
    itself is opened where it lies, and must have been prepared with these settings.
    Raises DataError naming file, line and remedy; the cache then holds what it held before.
    """
    if source.kind == "prepared" and source.path is not None:
        return open_published(source.path, window_steps=window_steps, window_stride=window_stride, seed=seed)
    where = str(source.path or source.kind)
    with _work(source, window_steps, window_stride, seed, progress or silent) as work:
        source_sha256 = work.digest()
        described = json.dumps([_preparation_sha256(), source.kind, source_sha256, work.settings])
        key = hashlib.sha256(described.encode()).hexdigest()
        folder = cache / f"{_file_name(work.name)}-{key[:SHORT_KEY]}"
        try:
            prepared = open_prepared(folder)
        except DataError:
            # Absent or damaged: either way it is made again from the source.
            about = {
                "name": work.name,
                "source": where,
                "source_sha256": source_sha256,
                "preparation": work.settings,
            }
            prepared = store(check(work.read(), where), folder, about, progress or silent)
    return replace(prepared, name=work.name, source=where)


@functools.cache
def _preparation_sha256() -> str:
    """SHA-256 of the code that prepares: no version number that somebody forgets to raise when a filter changes."""
    package = Path(__file__).parent
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(package.glob("*.py")))).hexdigest()


def _file_name(name: str) -> str:
    """A short stand-in for a name that may hold anything a file's name may."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:40]


@contextmanager
def _work(source: Source, window_steps: int, window_stride: int, seed: int, report: Report) -> Iterator[Work]:
    cutting = {"window_steps": window_steps, "window_stride": window_stride}
    if source.path is None:
        yield Work(
            name="synthetic",
            settings={**cutting, "seed": seed},
            digest=lambda: hashlib.sha256(b"synthetic").hexdigest(),
            read=lambda: synthetic.read(window_steps, window_stride, seed, report),
        )
        return
    path = source.path
    if source.kind == "npz":
        yield Work(
            name=path.stem,
            settings={},
            digest=lambda: _file_digest(path, report),
            read=lambda: npz.read(path, window_steps, report),
        )
        return
    with open_set(path) as found:
        if found is None:
            raise DataError(f"{path}: no longer holds recordings of kind {source.kind}; look for the source again")
        layout, tree = found
        yield Work(
            name=layout,
            settings=cutting,
            digest=lambda: _tree_digest(path, tree, layout, report),
            read=lambda: (
                hapt.read(tree, window_steps, window_stride, report)
                if layout == "hapt"
                else uci_har.read(tree, window_steps, report)
            ),
        )


def _tree_digest(path: Path, tree: FolderTree | ZipTree, layout: Layout, report: Report) -> str:
    if not isinstance(tree, FolderTree):
        return _file_digest(path, report)
    names = (hapt if layout == "hapt" else uci_har).wanted(tree.names())
    return digest(tree, names, report)


def _file_digest(path: Path, report: Report) -> str:
    """SHA-256 of a file, compared with what `<file>.sha256` beside it expects, if there is one."""
    found = file_digest(path, report)
    beside = path.with_name(path.name + CHECKSUM_SUFFIX)
    if beside.exists():
        words = beside.read_text(encoding="utf-8", errors="replace").split()
        expected = words[0].lower() if words else ""
        if expected != found:
            raise DataError(
                f"{path}: expected SHA-256 {expected or 'nothing'} as in {beside.name}, got {found}; fetch the file "
                f"again, or remove {beside.name} if the file was changed on purpose"
            )
    return found
