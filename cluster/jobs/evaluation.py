"""Evaluation of parameters as the servers hold them, for the job `evaluate` and any training.

Each worker takes chunks of rows, pulls the parameters and answers with a confusion matrix. A result
has the figures of each group of a test, such as a person, and which examples were taken for another
class.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import count
from math import fsum, inf, isfinite, isnan, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster.jobs.fit import chunks
from cluster.jobs.modes import float32, int32, standardization_of
from cluster.jobs.progress import Display
from cluster.jobs.session import Runner
from core.data import Dataset
from core.engine.runtime import trace
from core.engine.workers import Item
from core.ground.lazy import tf
from core.inventory.slots import LIBRARY
from core.inventory.training import TrainJob
from core.models.native import LibraryClassification, NativeNetwork, RowsOfSet
from core.models.network import BuiltIn, Network
from core.models.objective import EXAMPLES, Curve
from core.models.operations import compiled_by_xla
from core.status.events import Advanced, Consumer, FiguresComputed, StageBegan
from core.status.parts import FIGURE_KEYS, ClassCount, Figures
from ps_node.shard import PlacedVector
from worker_node.recordings import Standardization, WorkerWindows

MOST_GROUPS = 64
"""Groups of a test that get figures of their own: each takes a chunk at least."""

Groups = Mapping[int, tuple[int, Figures | None]]
"""Examples and figures of each group, by its number."""


def groups_of_test(dataset: Dataset) -> NDArray[np.int32] | None:
    """Return the group of each row; None where the test has one, too many, or some unknown."""
    groups = dataset.subjects()
    of_test = np.unique(groups[dataset.train_windows :])
    if 1 < len(of_test) <= MOST_GROUPS and of_test[0] >= 0:
        return groups
    return None


def describe_groups(groups: Groups, names: Sequence[str]) -> list[dict[str, Any]] | None:
    """Return the entry `by_group` of a result, worst first; null without groups.

    `names` are those of the groups by their numbers, as far as the source says them.
    """
    name_of = dict(enumerate(names))
    worst_first = sorted(groups.items(), key=lambda group: _how_well(group[1][1]))
    described = [
        {
            "group": name_of.get(number, str(number)),
            "examples": examples,
            **describe_figures(figures),
        }
        for number, (examples, figures) in worst_first
    ]
    return described or None


def describe_figures(figures: Figures | None) -> dict[str, Any]:
    """The figures, or a null for each of them."""
    if figures is not None:
        return figures.describe()
    return dict.fromkeys(FIGURE_KEYS)


def line_of_groups(groups: Groups, by: str, names: Sequence[str]) -> str | None:
    """Return the worst and the best group in words; None without groups or accuracies."""
    described = describe_groups(groups, names)
    if not described or None in (entry["accuracy"] for entry in described):
        return None
    worst = described[0]
    best = described[-1]
    return (
        f"test by {by or 'person'}: worst {worst['group']} (accuracy {worst['accuracy']:.4f}), best"
        f" {best['group']} ({best['accuracy']:.4f})"
    )


def say_groups(groups: Groups, dataset: Dataset, display: Display) -> None:
    """Say how far apart the figures of the groups are."""
    line = line_of_groups(groups, dataset.held_out.by, dataset.held_out.groups)
    if line is not None:
        display.say(line)


def _how_well(figures: Figures | None) -> float:
    if figures is None or isnan(figures.loss):
        return -inf
    if figures.accuracy is None:
        return -figures.loss
    return figures.accuracy


log = logging.getLogger(__name__)

CHUNK = 250
"""Windows of one dispatch: large enough that the pull does not count, small enough for every worker
to get some."""
NO_ROWS = np.zeros(0, np.int32)
LINGER_SECONDS = 5.0
"""Time for the chunks under way once an evaluation is to end."""


def answering(network: Network, job: TrainJob) -> Callable[..., Any]:
    """Return a graph's function of (trained, statistics, standardized inputs, rows) to logits."""
    if job.arithmetic == LIBRARY:
        assert isinstance(network, BuiltIn)
        return NativeNetwork(network).answers
    compiled = job.compiled

    def answered(trained: Any, statistics: Any, inputs: Any, rows: RowsOfSet) -> Any:
        del rows
        named = network.unpack(tf.concat([trained, statistics], 0))
        with compiled_by_xla(compiled):
            return network.apply(named, inputs, training=False, seed=tf.zeros([2], tf.int32)).logits

    if compiled:
        traced: Callable[..., Any] = tf.function(answered, autograph=False, jit_compile=True)
        return traced
    return answered


class Evaluation:
    """The workers' function: (rows, counts, standardization) to the sums behind the figures.

    `counts`, float32 (CHUNK,), is 1 for each row that counts, 0 for what fills the last chunk up.
    """

    def __init__(
        self,
        network: Network,
        windows: WorkerWindows,
        shards: PlacedVector[Any],
        job: TrainJob,
    ) -> None:
        """`job`: of the training, whose arithmetic computes the answers."""
        self.objective = network.objective
        if job.arithmetic == LIBRARY:
            self.objective = LibraryClassification(network.objective.outputs)
        self.shapes: dict[str, tuple[int, ...]] = {}
        compute = answering(network, job)

        def evaluate(rows: Any, counts: Any, standardization: Any) -> Any:
            # Every bit: the figures are those of the parameters that are stored, whatever the codec
            # of the training.
            trained, statistics, _ = shards.pull(exact=True)
            inputs, targets = windows.gather(rows, standardization)
            row_names = windows.identified(rows, standardization)
            answers = compute(trained, statistics, inputs, row_names)
            sums = self.objective.sums(targets, answers, counts)
            self.shapes = {name: tuple(value.shape) for name, value in sums.items()}
            columns = [*sums.values(), *self.objective.classes_named(answers)]
            return tf.concat([tf.reshape(tf.cast(value, tf.float64), [-1]) for value in columns], 0)

        self.function = trace(
            evaluate,
            int32(CHUNK),
            float32(CHUNK),
            standardization_of(windows),
        )

    def sums(self, replies: Sequence[NDArray[np.float64]]) -> dict[str, NDArray[np.float64]]:
        """The replies of all chunks added up, by name; empty without a reply.

        The sums are exact: the same bits in whatever order the workers answered.
        """
        if not replies:
            return {}
        ends = np.cumsum([prod(shape) for shape in self.shapes.values()])
        columns = zip(*(reply[: ends[-1]] for reply in replies), strict=True)
        whole = np.array([fsum(column) for column in columns])
        sums = np.split(whole, ends[:-1])
        return {
            name: part.reshape(shape)
            for (name, shape), part in zip(self.shapes.items(), sums, strict=True)
        }

    def named(self, reply: NDArray[np.float64]) -> NDArray[np.int32]:
        """The class that each row of a chunk was taken for, int32 (CHUNK,); empty without."""
        return reply[sum(map(prod, self.shapes.values())) :].astype(np.int32)


@dataclass(frozen=True)
class EvaluationResult:
    """What an evaluation found. `figures` is None if no example was looked at.

    `confusion` has shape (classes, classes), rows the true class; (0, 0) for a task without
    classes. `by_label` has for each of several labels at once how often it was right, wrong and
    missed.
    """

    figures: Figures | None
    confusion: NDArray[np.int64]
    examples: int
    by_label: Sequence[tuple[int, int, int]] = ()
    curves: Sequence[Curve | None] = ()
    """Precision over recall of each class; empty where there are too many classes, or none."""
    of_groups: Groups = field(default_factory=dict)
    rows: NDArray[np.int32] = field(default_factory=lambda: NO_ROWS)
    named: NDArray[np.int32] = field(default_factory=lambda: NO_ROWS)
    """The class that each of `rows` was taken for; both empty for a task without one class a row.
    """


class Evaluator:
    """Evaluates the parameters as the servers hold them."""

    def __init__(
        self,
        dispatcher: Runner,
        evaluation: Evaluation,
        reply: Callable[[int, int, float], None] = lambda *_: None,
    ) -> None:
        """`reply` gets the task, the windows and the seconds of each reply."""
        self._dispatcher = dispatcher
        self._evaluation = evaluation
        self._reply = reply
        self._ids = count(-1, -1)
        """Below zero: an evaluation changes nothing, so its ids must never meet those of updates.
        """

    def __call__(
        self,
        rows: NDArray[np.integer],
        standardization: Standardization,
        advance: Callable[[], None] = lambda: None,
        stop: Callable[[], bool] = lambda: False,
        groups: NDArray[np.integer] | None = None,
    ) -> EvaluationResult:
        """Figures over these rows of the data set, of each group too.

        Once `stop()` is true, over those that were on their way by then. `groups` has the group of
        each row of the set.
        """
        if groups is None:
            rows_of = {0: rows}
        else:
            of_rows = groups[rows]
            rows_of = {int(group): rows[of_rows == group] for group in np.unique(of_rows)}
        replies: dict[int, list[NDArray[np.float64]]] = {group: [] for group in rows_of}
        group_of = dict[int, int]()
        named = [(NO_ROWS, NO_ROWS)]
        packed = standardization.packed()

        def items() -> Iterator[Item]:
            for group, part in rows_of.items():
                for chunk, weights in chunks(part.astype(np.int32), CHUNK):
                    number = next(self._ids)
                    group_of[number] = group
                    yield Item(number, self._evaluation.function, (chunk, weights, packed))

        for outcome in self._dispatcher.run(items(), stop, LINGER_SECONDS):
            replies[group_of[outcome.item.id]].append(outcome.value)
            if len(classes := self._evaluation.named(outcome.value)):
                chunk, weights, _ = outcome.item.arguments
                named.append((chunk[weights > 0], classes[weights > 0]))
            self._reply(outcome.task, int(outcome.value[0]), outcome.seconds)
            advance()
        whole = replace(
            self._result_of([reply for of_group in replies.values() for reply in of_group]),
            rows=np.concatenate([chunk for chunk, _ in named]),
            named=np.concatenate([classes for _, classes in named]),
        )
        if groups is None:
            return whole
        by_group = {group: self._result_of(of) for group, of in replies.items()}
        of_groups = {group: (of.examples, of.figures) for group, of in by_group.items()}
        return replace(whole, of_groups=of_groups)

    def _result_of(self, replies: Sequence[NDArray[np.float64]]) -> EvaluationResult:
        sums = self._evaluation.sums(replies)
        objective = self._evaluation.objective
        if not sums or not sums[EXAMPLES]:
            return EvaluationResult(None, objective.no_confusion(), 0)
        return EvaluationResult(
            Figures(**objective.figures(sums)),
            objective.confusion(sums),
            int(sums[EXAMPLES]),
            objective.by_label(sums),
            objective.curves(sums),
        )


def figures_computed(
    split: str, evaluation: EvaluationResult, labels: Sequence[str], epoch: int | None
) -> FiguresComputed:
    """The event of an evaluation that looked at something."""
    assert evaluation.figures is not None
    counts = tuple(
        ClassCount(label, *numbers)
        for label, numbers in zip(labels, evaluation.by_label, strict=False)
    )
    rows = tuple(map(tuple, evaluation.confusion.tolist()))
    return FiguresComputed(
        split, evaluation.figures, tuple(labels) if rows else (), rows, epoch, counts
    )


def run_test_stage(
    evaluator: Evaluator,
    dataset: Dataset,
    standardization: Standardization,
    emit: Consumer,
    stop: Callable[[], bool],
) -> EvaluationResult:
    """The stage `test`: what the windows on their way until `stop()` is true showed."""
    rows = np.arange(
        dataset.train_windows, dataset.train_windows + dataset.test_windows, dtype=np.int32
    )
    groups = groups_of_test(dataset)
    if groups is None:
        sizes = np.array([len(rows)])
    else:
        sizes = np.unique(groups[rows], return_counts=True)[1]
    emit(StageBegan("test", int((-(-sizes // CHUNK)).sum()), "chunks"))
    done = count(1)
    evaluation = evaluator(rows, standardization, lambda: emit(Advanced(next(done))), stop, groups)
    if evaluation.figures is not None and not isfinite(evaluation.figures.loss):
        log.warning(
            "the loss over the test set is %s: some answers are no numbers, and the other figures"
            " mean nothing",
            evaluation.figures.loss,
        )
    return evaluation


MOST_STRETCHES = 1000
"""Entries of a result; more say no more to a person."""


def wrong_stretches(
    rows: NDArray[np.int32], named: NDArray[np.int32], dataset: Dataset
) -> list[dict[str, Any]] | None:
    """Return the entry `wrong` of a result, in the order of the test; null without classes.

    `rows` int32 (n,): rows of the data set, in any order; `named` int32 (n,): the class that each
    was taken for. Windows that follow each other and are wrong alike are one stretch.
    """
    if not len(named):
        return None
    order = np.argsort(rows)
    rows = rows[order]
    columns = [rows, dataset.subjects()[rows], dataset.classes()[rows], named[order]]
    of_wrong = np.stack(columns)[:, columns[2] != columns[3]]
    breaks = np.flatnonzero((np.diff(of_wrong, axis=1) != [[1], [0], [0], [0]]).any(axis=0)) + 1
    stretches = np.split(of_wrong, breaks, axis=1)[:MOST_STRETCHES]
    return [_described(stretch, dataset) for stretch in stretches if stretch.size]


def describe_test(evaluation: EvaluationResult | None, dataset: Dataset | None) -> dict[str, Any]:
    """Return the entries of a result about a test; nulls without one."""
    if evaluation is None or dataset is None:
        entries = ("by_group", "wrong", "confusion", "precision_recall")
        return {"final": describe_figures(None), **dict.fromkeys(entries)}
    curves = {
        label: asdict(curve)
        for label, curve in zip(dataset.labels, evaluation.curves, strict=False)
        if curve is not None
    }
    return {
        "final": describe_figures(evaluation.figures),
        "by_group": describe_groups(evaluation.of_groups, dataset.held_out.groups),
        "wrong": wrong_stretches(evaluation.rows, evaluation.named, dataset),
        "confusion": evaluation.confusion.tolist(),
        "precision_recall": curves or None,
    }


def _described(stretch: NDArray[np.int32], dataset: Dataset) -> dict[str, Any]:
    first, person, true, named = stretch[:, 0].tolist()
    names = dict(enumerate(dataset.held_out.groups))
    return {
        "group": names.get(person, None if person < 0 else str(person)),
        "first": first - dataset.train_windows,
        "last": int(stretch[0, -1]) - dataset.train_windows,
        "true": dataset.labels[true],
        "predicted": dataset.labels[named],
    }
