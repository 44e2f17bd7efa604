"""The sum over chunks, whole and cut short, with workers that answer at once."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

import numpy as np
import pytest

from cluster.engine.dispatcher import Dispatcher
from cluster.engine.messages import Item, Outcome
from cluster.jobs.evaluation import CHUNK, Evaluator
from cluster.jobs.recordings import Standardization

STANDARD = Standardization(np.zeros(2, np.float32), np.ones(2, np.float32))


class Inline:
    """Runs each item when it is drawn: every even row is of class 0, odd of 1, and all are taken for class 0."""

    def __init__(self) -> None:
        self.ids: list[int] = []

    def run(self, items: Iterable[Item], stop: Callable[[], bool]) -> Iterator[Outcome]:
        for item in items:
            if stop():
                return
            rows, weights, _ = item.arguments
            confusion = np.zeros((2, 2))
            np.add.at(confusion, (rows % 2, np.zeros(len(rows), int)), weights)
            value: Any = np.append(confusion.ravel(), 0.5 * weights.sum())
            self.ids.append(item.id)
            yield Outcome(item, 0, value, 0.1, 1)


def test_every_row_counts_once_and_ids_are_below_zero() -> None:
    workers = Inline()
    replies: list[tuple[int, int, float]] = []
    evaluate = Evaluator(cast(Dispatcher, workers), 2, lambda *reply: replies.append(reply))
    for _ in range(2):
        found, confusion = evaluate(np.arange(CHUNK * 2 + 11), STANDARD)
        assert confusion.tolist() == [[CHUNK + 6, 0], [CHUNK + 5, 0]]
        assert found is not None
        assert found.accuracy == pytest.approx((CHUNK + 6) / (2 * CHUNK + 11))
        assert found.loss == pytest.approx(0.5)
    assert replies == 2 * [(0, CHUNK, 0.1), (0, CHUNK, 0.1), (0, 11, 0.1)]
    assert len(set(workers.ids)) == 6
    assert max(workers.ids) < 0


def test_stopped_it_leaves_the_figures_of_what_was_evaluated() -> None:
    done = 0

    def advance() -> None:
        nonlocal done
        done += 1

    evaluate = Evaluator(cast(Dispatcher, Inline()), 2)
    found, confusion = evaluate(np.arange(CHUNK * 8), STANDARD, advance, lambda: done == 3)
    assert confusion.sum() == 3 * CHUNK
    assert found is not None
    assert found.accuracy == pytest.approx(0.5)
    nothing, confusion = evaluate(np.arange(CHUNK), STANDARD, stop=lambda: True)
    assert nothing is None
    assert confusion.sum() == 0
