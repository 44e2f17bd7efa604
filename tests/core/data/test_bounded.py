"""An iterator of examples that never ends is refused.

At once where it says so, else by bytes or by the disk.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from core.data import batch
from core.data.batch import Batch, Bound
from core.data.given import Data, batches_of
from tests.core.data.desk import refused

PAIR = (np.zeros(1000, np.float32), 0)
KEY = "jobs.train.data.most_gigabytes"


class Repeated:
    """A data set of TensorFlow's behind repeat()."""

    def cardinality(self) -> int:
        return -1

    def __iter__(self) -> Iterator[Any]:
        return itertools.repeat(PAIR)


@pytest.mark.parametrize("x", [itertools.cycle([PAIR]), itertools.repeat(PAIR), Repeated()])
@pytest.mark.parametrize("part", ["x_train", "x_test"])
def test_what_says_that_it_never_ends_is_refused_at_once(x: Any, part: str) -> None:
    given = {"x_train": iter([PAIR]), "x_test": iter([PAIR]), part: x}
    with refused(f"data(): {part}: ... never ends; leave out repeat"):
        batches_of(given)


def endless() -> Iterator[Any]:
    while True:
        yield PAIR


def drawn(folder: Path, most_bytes: int, x: Any, said: list[str] | None = None) -> list[Batch]:
    batches, _ = batches_of(x if isinstance(x, Data) else Data(x, x_test=iter([PAIR])))
    say = (said if said is not None else []).append
    return list(Bound(most_bytes, KEY, folder).bounded(batches, "app.py: data()", say))


def test_a_generator_without_an_end_is_refused_with_the_key_to_set(tmp_path: Path) -> None:
    said = f"app.py: data(): brings more than 0.02 GB ... while True ... or set {KEY}"
    with refused(said):
        drawn(tmp_path, 20_000_000, endless())


def test_it_leaves_room_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=100 << 20))
    with refused("the disk of ... has 100 MiB left"):
        drawn(tmp_path, 20_000_000, endless())


def test_a_long_one_that_ends_is_heard_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "SAY_SECONDS", 0.0)
    said: list[str] = []
    batches = drawn(tmp_path, 10**9, itertools.repeat(PAIR, 5000), said)
    assert sum(len(batch.x) for batch in batches) == 5001
    assert said[0].endswith("GB are written, and the iterator has more")


def test_arrays_end_by_themselves(tmp_path: Path) -> None:
    x = np.zeros((100, 1000), np.float32)
    y = np.arange(100) % 2
    assert drawn(tmp_path, 1, Data(x, y, x, y))
