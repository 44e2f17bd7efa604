"""From a source, or from anybody's examples, to a prepared data set.

A source goes through the cache. Examples are written in constant memory: give arrays or iterators
to `batches_of`, and what it returns to `write_examples`.
"""

import functools
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from core.data.archive import digest, file_digest, noted_digest, tree_of
from core.data.batch import Batch, BatchValidator, Examples, examples_of
from core.data.dataset import CLASSIFICATION, MANIFEST, Dataset, open_prepared
from core.data.described.known_formats import described
from core.data.given import Data, batches_of
from core.data.npz import DEFAULT_WINDOW_STEPS, refuse_other_steps
from core.data.recordings import NO_SUBJECT, Cutting, Recordings, Report, check, silent
from core.data.signals import CAUSAL, TWO_WAY
from core.data.source import DESCRIBED, FORMATS, PREPARED, READERS, SETS, Source, open_set
from core.data.store import (
    SHORT_KEY,
    Columns,
    Origin,
    partial_folder,
    publish_columns,
    short_name,
    writing_to,
)
from core.data.windows import UnitsLook
from core.ground.errors import DataError
from core.ground.files import read_json

__all__ = ["Batch", "Data", "batches_of", "write_examples"]


def write_examples(
    batches: Iterator[Batch],
    cache: Path,
    *,
    name: str,
    source: str,
    task: str = CLASSIFICATION,
    labels: Sequence[str] | None,
    report: Report = silent,
) -> Dataset:
    """Write the data set of these batches into a folder below `cache`.

    The folder is named after `name` and the content.

    The training rows come first in it, in whatever order the batches come. Memory is that of one
    batch. The folder is complete or absent; one of the same content is used again. `source` begins
    every message, `labels` are the names of the classes or labels, or None where the numbers
    themselves say how many there are. `report` gets the rows written and how many there are: the
    iterator's `rows`, which that of `batches_of` has; 0 where it is unknown.

    Stored are bool as uint8, float64 as float32, uint32 and uint64 as int64, classes as int32,
    labels as uint8 and values as float32; other numbers as they are.

    Raises DataError: a shape or dtype that changes, a number that is not finite, targets that are
    none of `task`, an empty part, a group in both parts, a disk that takes no more. What the
    iterator raises passes through.
    """
    examples = Examples(batches, task, labels, standardized=False)
    return write_prepared(examples, cache, None, Origin(name, source), report)


def write_prepared(
    examples: Examples, cache: Path, folder: Path | None, origin: Origin, report: Report
) -> Dataset:
    """Write examples as `write_examples` does, into `folder` where it is not None.

    The engine standardizes each channel, the last axis of x, of those that are so.
    """
    batches = examples.batches
    gate = BatchValidator(origin.source, examples.task, examples.labels)
    origin = replace(origin, held_out=examples.held_out, signals=examples.signals)
    total: int = getattr(batches, "rows", 0)
    units = UnitsLook(origin.signals)
    with partial_folder(cache) as partial, Columns(partial, total) as columns:
        for batch in batches:
            passed = gate.passed(batch)
            units.take_people(passed.x, passed.groups)
            with writing_to(partial):
                columns.add(passed)
            report("writing", columns.rows, total)
        labels = gate.labels()
        units.refuse(origin.source)
        with writing_to(partial):
            columns.finish(
                examples.task, standardized=examples.standardized, weighted=gate.weighted
            )
            _refuse_shared(columns, labels, origin)
            return publish_columns(columns, labels, origin, folder)


def _refuse_shared(columns: Columns, labels: tuple[str, ...], origin: Origin) -> None:
    groups = columns.dataset(labels, origin.name, origin.source).subjects()
    shared = np.intersect1d(groups[: columns.train_rows], groups[columns.train_rows :])
    shared = shared[shared != NO_SUBJECT]
    if shared.size:
        raise DataError(
            f"{origin.source}: group {int(shared[0])} is in the training and in the test set, so"
            " the test would reward recognizing it; keep each group in one set"
        )


def prepare(
    source: Source,
    *,
    window_steps: int = 128,
    window_stride: int = 64,
    cache: Path,
    seed: int = 0,
    options: Mapping[str, Any] = MappingProxyType({}),
    progress: Report | None = None,
) -> Dataset:
    """Windows or examples of `source`, prepared in or re-used from the folder `cache`.

    The prepared folder is named after a hash of the source's bytes, the parameters and this
    package's own code: what changed is prepared again, what did not is not, wherever the source
    lies. `seed` matters to synthetic recordings only, `options` (the other fields of `Cutting`, by
    name) to the kinds that know them. `progress` is called with a stage, what is done and what
    there is in all. A source that is a prepared folder itself is opened where it lies, and must
    have been prepared with these settings. Raises DataError naming file, line and remedy; the cache
    is then unchanged.
    """
    cutting = Cutting.of(window_steps, window_stride, seed, _with_format(source, options))
    if source.kind == PREPARED and source.path is not None:
        return open_published(source.path, cutting)
    where = str(source.path or source.kind)
    report = progress or silent
    reader = READERS[source.kind]
    if cutting.filters == CAUSAL and "filters" not in reader.settings:
        raise DataError(
            f"{where}: jobs.train.data.filters: recordings of kind {source.kind} are not filtered"
            f" here, so {CAUSAL} would change nothing; set {TWO_WAY}, or use the raw HAPT"
            " recordings"
        )
    settings = {setting: getattr(cutting, setting) for setting in reader.settings}
    named = source.path is not None and (reader.suffix or not reader.marker)
    if source.path is not None and named:
        name = source.path.stem or source.kind
    else:
        name = source.kind
    with _in_memory(where):
        opened = _open_source(source)
        source_sha256 = _digest(source, report)
        described = json.dumps([_preparation_sha256(), source.kind, source_sha256, settings])
        key = hashlib.sha256(described.encode()).hexdigest()
        folder = cache / f"{short_name(name)}-{key[:SHORT_KEY]}"
        try:
            prepared = open_prepared(folder)
        except DataError:
            # Absent or damaged: either way it is made again from the source.
            origin = Origin(name, where, source_sha256, settings)
            examples = reader.read(opened, cutting, report)
            if isinstance(examples, Recordings):
                examples = examples_of(check(examples, where))
            prepared = write_prepared(examples, cache, folder, origin, report)
    if not settings and prepared.holds_windows:
        refuse_other_steps(where, prepared.window_steps, cutting)
    return replace(prepared, name=name, source=where)


@contextmanager
def _in_memory(where: str) -> Iterator[None]:
    """Raise DataError for a source that takes more memory than there is."""
    try:
        yield
    except MemoryError:
        raise DataError(
            f"{where}: takes more memory than this process may have; cut its examples or files"
            " smaller, or prepare it on a larger machine"
        ) from None


def _with_format(source: Source, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the options with the format itself in the place of its name or file.

    Raises DataError.
    """
    if source.kind == SETS and source.path is not None:
        from core.data.described.sets import described_sets  # SciPy, which a service has no use for

        return {**options, "format": described_sets(source.path)}
    if source.kind not in (DESCRIBED, *FORMATS) or source.path is None:
        return {**options, "format": None}
    form = described(FORMATS.get(source.kind, options.get("format")), source.path)
    return {**options, "format": form.model_dump(mode="json", by_alias=True)}


def open_published(folder: Path, cutting: Cutting) -> Dataset:
    """Open the data set in `folder` and compare its settings with the given ones.

    Its files are compared with its manifest.

    Settings that its kind of source does not know do not matter. Raises DataError.
    """
    dataset = open_prepared(folder)
    settings = read_json(folder / MANIFEST).get("preparation")
    if not isinstance(settings, dict):
        raise DataError(
            f"{folder / MANIFEST}: does not say how it was prepared; prepare the data again"
        )
    job_settings = vars(cutting)
    if cutting.filters == CAUSAL and "filters" not in settings:
        raise DataError(
            f"{folder}: does not say that it was prepared with filters {CAUSAL}; prepare and"
            " publish the data for this job, or change the job"
        )
    if not settings and dataset.holds_windows and cutting.window_steps != DEFAULT_WINDOW_STEPS:
        # The source came cut into windows of one length, which no setting chose.
        settings = {"window_steps": dataset.window_steps}
    for name, value in settings.items():
        if value != job_settings.get(name):
            raise DataError(
                f"{folder}: prepared with {name} {value}, expected {job_settings.get(name)} as in"
                " the job; prepare and publish the data for this job, or change the job"
            )
    return dataset


@functools.cache
def _preparation_sha256() -> str:
    """SHA-256 of the code and the formats that prepare.

    Unlike a version number it changes with every filter.
    """
    package = Path(__file__).parent
    files = sorted([*package.rglob("*.py"), *package.rglob("*.yaml")])
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def _open_source(source: Source) -> Any:
    """Return what the source's reader reads.

    The files of a set, the path of a file or folder, or None for what is made here.
    """
    path = source.path
    if path is None or READERS[source.kind].marker is None or source.kind in FORMATS:
        return path
    kind_and_tree = open_set(path)
    if kind_and_tree is None or kind_and_tree[0] != source.kind:
        raise DataError(
            f"{path}: no longer holds recordings of kind {source.kind}; look for the source again"
        )
    return kind_and_tree[1]


def _digest(source: Source, report: Report) -> str:
    """SHA-256 over the bytes that decide the result."""
    if source.path is None:
        return hashlib.sha256(source.kind.encode()).hexdigest()
    if source.path.is_dir():
        tree = tree_of(source.path)
        return digest(tree, READERS[source.kind].deciding_files(tree.names()), report)
    return _file_digest(source.path, report)


def _file_digest(path: Path, report: Report) -> str:
    """SHA-256 of a file, compared with what `<file>.sha256` beside it expects, if there is one."""
    actual_digest = file_digest(path, report)
    expected_digest, where = noted_digest(path) or (actual_digest, "")
    if expected_digest != actual_digest:
        raise DataError(
            f"{path}: expected SHA-256 {expected_digest} as in {where}, got {actual_digest}; fetch"
            f" the file again, or remove {where} if the file was changed on purpose"
        )
    return actual_digest
