"""The sum over chunks, whole and cut short, with workers that answer at once."""

from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from cluster.jobs.evaluation import (
    CHUNK,
    Evaluation,
    Evaluator,
    describe_groups,
    line_of_groups,
    wrong_stretches,
)
from core.engine.dispatcher import Dispatcher
from core.engine.workers import Item, Outcome
from core.models.objective import CONFUSION, EXAMPLES, LOSS
from core.models.tasks import Classification
from tests.cluster.jobs.kit import nothing
from worker_node.recordings import Standardization

OF_TWO_CLASSES = Evaluation.__new__(Evaluation)
OF_TWO_CLASSES.function = cast(Any, None)
OF_TWO_CLASSES.objective = Classification(2)
OF_TWO_CLASSES.shapes = {EXAMPLES: (), LOSS: (), CONFUSION: (2, 2)}

STANDARD = Standardization(np.zeros(2, np.float32), np.ones(2, np.float32))


class Inline:
    """Runs each item when it is drawn: even rows are of class 0, and all are taken for it."""

    def __init__(
        self, order: int = 1, loss: Callable[[Any], float] = lambda rows: 0.5 * len(rows)
    ) -> None:
        """`order` -1: the last item is answered first."""
        self.ids: list[int] = []
        self._order = order
        self._loss = loss

    def run(
        self, items: Iterable[Item], stop: Callable[[], bool], linger_seconds: float = 0.0
    ) -> Iterator[Outcome]:
        for item in items if self._order > 0 else list(items)[::-1]:
            if stop():
                return
            rows, weights, _ = item.arguments
            confusion = np.zeros((2, 2))
            np.add.at(confusion, (rows % 2, np.zeros(len(rows), int)), weights)
            sums = [weights.sum(), self._loss(rows[weights > 0])]
            value: Any = np.concatenate([sums, confusion.ravel(), np.zeros(len(rows))])
            self.ids.append(item.id)
            yield Outcome(item, 0, value, 0.1, 1)


def evaluator(workers: Inline, replied: Callable[[int, int, float], None] = nothing) -> Evaluator:
    return Evaluator(cast(Dispatcher, workers), OF_TWO_CLASSES, replied)


def test_every_row_counts_once_and_ids_are_below_zero() -> None:
    workers = Inline()
    replies: list[tuple[int, int, float]] = []
    evaluate = evaluator(workers, lambda *reply: replies.append(reply))
    for _ in range(2):
        whole = evaluate(np.arange(CHUNK * 2 + 11), STANDARD)
        assert whole.confusion.tolist() == [[CHUNK + 6, 0], [CHUNK + 5, 0]]
        assert whole.figures is not None
        assert whole.figures.accuracy == pytest.approx((CHUNK + 6) / (2 * CHUNK + 11))
        assert whole.figures.loss == pytest.approx(0.5)
    assert replies == 2 * [(0, CHUNK, 0.1), (0, CHUNK, 0.1), (0, 11, 0.1)]
    assert len(set(workers.ids)) == 6
    assert max(workers.ids) < 0


def test_each_group_has_figures_of_its_own_and_the_worst_comes_first() -> None:
    rows = np.arange(CHUNK + 30)
    groups = np.where(rows % 2, 1, 2)
    groups[::20] = 1
    found = evaluator(Inline())(rows, STANDARD, groups=groups)
    assert found.confusion.tolist() == [[140, 0], [140, 0]]
    described = describe_groups(found.of_groups, ["anna", "bob"])
    assert described is not None
    figures = [(of["group"], of["examples"], of["accuracy"], of["loss"]) for of in described]
    assert figures == [("bob", 154, pytest.approx(14 / 154), 0.5), ("2", 126, 1.0, 0.5)]
    line = line_of_groups(found.of_groups, "user", ["anna", "bob"])
    assert line == "test by user: worst bob (accuracy 0.0909), best 2 (1.0000)"


def test_windows_that_are_wrong_alike_are_one_stretch_of_the_test() -> None:
    dataset = SimpleNamespace(
        train_windows=2,
        labels=("sit", "walk"),
        held_out=SimpleNamespace(groups=("anna",)),
        classes=lambda: np.array([0, 0, 0, 1, 1, 0, 1, 1]),
        subjects=lambda: np.array([0, 0, 0, 0, 0, 0, 0, 1]),
    )
    found = evaluator(Inline(-1))(np.arange(2, 8), STANDARD)
    wrong = wrong_stretches(found.rows, found.named, cast(Any, dataset))
    as_walk = {"true": "walk", "predicted": "sit"}
    assert wrong == [
        {"group": "anna", "first": 1, "last": 2, **as_walk},
        {"group": "anna", "first": 4, "last": 4, **as_walk},
        {"group": "1", "first": 5, "last": 5, **as_walk},
    ]


def test_stopped_it_leaves_the_figures_of_what_was_evaluated() -> None:
    done = list[None]()
    evaluate = evaluator(Inline())
    rows = np.arange(CHUNK * 8)
    found = evaluate(rows, STANDARD, lambda: done.append(None), lambda: len(done) == 3)
    assert (found.confusion.sum(), found.examples) == (3 * CHUNK, 3 * CHUNK)
    assert found.figures is not None
    assert found.figures.accuracy == pytest.approx(0.5)
    none = evaluate(rows, STANDARD, stop=lambda: True)
    assert none.figures is None
    assert (none.confusion.tolist(), none.examples) == ([[0, 0], [0, 0]], 0)


def test_the_loss_is_the_same_to_the_bit_in_whatever_order_the_workers_answer() -> None:
    first, second = (
        evaluator(Inline(order, lambda rows: 0.1 + 1e6 / (1 + rows[0] ** 2)))(
            np.arange(CHUNK * 9), STANDARD
        ).figures
        for order in (1, -1)
    )
    assert first is not None
    assert second is not None
    assert first.loss == second.loss
