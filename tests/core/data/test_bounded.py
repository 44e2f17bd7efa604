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
from core.data.batch import Batch, bounded
from core.data.prepare import Data, batches_of, write_examples
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


def drawn(most_bytes: int, x: Any, said: list[str] | None = None) -> list[Batch]:
    batches, _ = batches_of(Data(x, x_test=iter([PAIR])))
    say = (said if said is not None else []).append
    return list(bounded(batches, most_bytes, KEY, "app.py: data()", say))


def test_a_generator_without_an_end_is_refused_with_the_key_to_set() -> None:
    said = f"app.py: data(): brings more than 0.02 GB ... while True ... or set {KEY}"
    with refused(said):
        drawn(20_000_000, endless())


def test_it_leaves_room_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=100 << 20))
    large = (
        Batch(np.zeros((1000, 9000), np.float64), np.arange(1000) % 2) for _ in itertools.count()
    )
    with refused("cannot be written (No space left on device); free more than the"):
        write_examples(large, tmp_path, name="large", source="app", labels=None)
    assert not list(tmp_path.iterdir())


def test_a_long_one_that_ends_is_heard_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "SAY_SECONDS", 0.0)
    said: list[str] = []
    batches = drawn(10**9, itertools.repeat(PAIR, 5000), said)
    assert sum(len(batch.x) for batch in batches) == 5001
    assert said[0].endswith("GB are written, and the iterator has more")


def test_arrays_say_how_many_they_are() -> None:
    x = np.zeros((100, 1000), np.float32)
    y = np.arange(100) % 2
    assert batches_of(Data(x, y, x, y))[0].rows == 200
