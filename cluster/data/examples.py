"""Anybody's examples, written to a prepared data set in constant memory.

Give arrays or iterators to `batches_of`, and what it returns to `write_examples`.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from cluster.data.batch import Batch, Gate
from cluster.data.columns import Columns
from cluster.data.dataset import CLASSIFICATION, Dataset
from cluster.data.given import Data, batches_of
from cluster.data.recordings import NO_SUBJECT, Report, silent
from cluster.data.store import Origin, partial_folder, publish, writing_to
from cluster.errors import DataError

__all__ = ["Batch", "Data", "batches_of", "write_examples"]


def write_examples(
    batches: Iterator[Batch],
    cache: Path,
    *,
    name: str,
    source: str,
    task: str = CLASSIFICATION,
    labels: Sequence[str] | None,
    standardized: bool = False,
    report: Report = silent,
) -> Dataset:
    """The data set of these batches, in a folder below `cache` that is named after `name` and the content.

    The training rows come first in it, in whatever order the batches come. Memory is that of one batch. The folder
    is complete or absent; one of the same content is used again. `source` begins every message, `labels` are the
    names of the classes or labels, or None where the numbers themselves say how many there are. With `standardized`
    the engine standardizes each channel, the last axis of x. `report` gets the rows written and how many
    there are: the iterator's `rows`, which that of `batches_of` has; 0 where it is unknown.

    Stored are bool as uint8, float64 as float32, uint32 and uint64 as int64, classes as int32, labels as uint8 and
    values as float32; other numbers as they are.

    Raises DataError: a shape or dtype that changes, a number that is not finite, targets that are none of `task`, an
    empty part, a group in both parts, a disk that takes no more. What the iterator raises passes through.
    """
    return written(batches, cache, None, Origin(name, source), Gate(source, task, labels), task, standardized, report)


def written(
    batches: Iterator[Batch],
    cache: Path,
    folder: Path | None,
    origin: Origin,
    gate: Gate,
    task: str,
    standardized: bool,
    report: Report,
) -> Dataset:
    """As `write_examples`, into `folder` where it is not None."""
    total: int = getattr(batches, "rows", 0)
    with partial_folder(cache) as partial, Columns(partial) as columns:
        for batch in batches:
            passed = gate.passed(batch)
            with writing_to(partial):
                columns.add(passed)
            report("writing", columns.rows, total)
        labels = gate.labels()
        with writing_to(partial):
            columns.finish(task, standardized=standardized, weighted=gate.weighted)
            _refuse_shared(columns, labels, origin)
            return publish(columns, labels, origin, folder)


def _refuse_shared(columns: Columns, labels: tuple[str, ...], origin: Origin) -> None:
    groups = columns.dataset(labels, origin.name, origin.source).subjects()
    shared = np.intersect1d(groups[: columns.train_rows], groups[columns.train_rows :])
    shared = shared[shared != NO_SUBJECT]
    if shared.size:
        raise DataError(
            f"{origin.source}: group {int(shared[0])} is in the training and in the test set, so the test would "
            f"reward recognizing it; keep each group in one set"
        )
