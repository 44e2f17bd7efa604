"""Examples as a person gives them."""

from pathlib import Path
from typing import Any

import numpy as np

from core.data import Dataset
from core.data.batch import Examples
from core.data.prepare import Data, batches_of, write_prepared
from core.data.recordings import Report, silent
from core.data.store import Origin

RANDOM = np.random.default_rng(3)
IMAGES = RANDOM.integers(0, 255, (30, 5, 4, 3), np.uint8)
CLASSES = np.arange(30) % 3
WORDS = RANDOM.integers(0, 9, (30, 5)).astype(np.int32)
TAGS = WORDS % 3


def cut(x: Any = IMAGES, y: Any = CLASSES, **beside: Any) -> Data:
    """Thirty examples: the first twenty are for training."""
    return Data(x[:20], y[:20], x[20:], y[20:], **beside)


def data(**changes: Any) -> Data:
    return Data(**{**vars(cut()), **changes})


def written(
    given: Any,
    cache: Path,
    task: str = "classification",
    *,
    name: str = "mine",
    source: str = "data()",
    standardized: bool = False,
    report: Report = silent,
) -> Dataset:
    batches, labels = batches_of(given, task)
    made = Examples(batches, task, labels, standardized)
    return write_prepared(made, cache, None, Origin(name, source), report)
