"""Anybody's examples, written to a prepared data set in constant memory.

Give arrays or iterators to `batches_of`, and what it returns to `write_examples`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from core.data.batch import Batch, BatchValidator, Examples
from core.data.columns import Columns
from core.data.dataset import CLASSIFICATION, Dataset
from core.data.given import Data, batches_of
from core.data.recordings import NO_SUBJECT, Report, silent
from core.data.store import Origin, partial_folder, publish_columns, writing_to
from core.data.window_units import UnitsLook
from core.ground.errors import DataError

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
