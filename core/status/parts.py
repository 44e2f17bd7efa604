"""What events are made of: figures, counters, confusions of classes, and types with bounds.

The bounds are there because a run's folder may be foreign. Of few classes there is a matrix, of
many there are counts and the most frequent mistakes.
"""

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from heapq import nlargest
from math import isfinite, isnan, nan
from typing import Annotated, Any

from pydantic import AwareDatetime, Field

PARTS = ("pull", "compute", "push", "wait")
CLASSIFICATION = "classification"
MULTILABEL = "multilabel"
REGRESSION = "regression"
STALENESS_BOUNDS = (0, 1, 2, 4, 8, 16, 32, 64)

Seconds = Annotated[float, Field(ge=0.0, le=1e10, allow_inf_nan=False)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, lt=2**63)]
Name = Annotated[str, Field(max_length=500)]
Text = Annotated[str, Field(max_length=20_000)]
Moment = Annotated[
    AwareDatetime, Field(ge=datetime(1970, 1, 1, tzinfo=UTC), le=datetime(2200, 1, 1, tzinfo=UTC))
]


FIGURE_KEYS = (
    "accuracy",
    "f1_macro",
    "f1_weighted",
    "precision_macro",
    "precision_weighted",
    "recall_macro",
    "recall_weighted",
    "loss",
)
"""The figures that every task may have, in the order of `result.json`."""
MOST_OTHERS = 32
LONGEST_OTHER = 100
"""Characters of the name of another figure."""
_RESERVED = frozenset({*FIGURE_KEYS, "epoch"})
_IN_A_LINE = 4


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What an evaluation found. None stands for a figure that has no meaning for the task.

    Of a classification, macro is the mean over the classes and weighted that over the examples.
    `others` are figures that only this task or this app has, by name, e.g. `mae` of a regression.
    One that is not finite is left out.
    """

    loss: Number
    accuracy: Number | None = None
    f1_macro: Number | None = None
    f1_weighted: Number | None = None
    precision_macro: Number | None = None
    precision_weighted: Number | None = None
    recall_macro: Number | None = None
    recall_weighted: Number | None = None
    others: Mapping[Name, Number] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        """Raises ValueError for a name in `others` that `refuse_names` refuses."""
        refuse_names(self.others)
        finite = {name: float(value) for name, value in self.others.items() if isfinite(value)}
        object.__setattr__(self, "others", finite)

    def describe(self) -> dict[str, float | None]:
        """Return the entry of `result.json`.

        It has a key for each usual figure, null where it has no meaning, then the others.
        """
        return {**{key: getattr(self, key) for key in FIGURE_KEYS}, **self.others}

    def line(self) -> str:
        """Return accuracy and macro F1 in words, or the loss where there is neither.

        Then the first of the others follow.
        """
        usual = {"accuracy": self.accuracy, "macro F1": self.f1_macro}
        figures = {name: value for name, value in usual.items() if value is not None} or {
            "loss": self.loss
        }
        more = len(self.others) - _IN_A_LINE
        texts = [
            f"{name} {figure_text(value)}"
            for name, value in (*figures.items(), *[*self.others.items()][:_IN_A_LINE])
        ]
        return ", ".join([*texts, *([f"{more} more"] if more > 0 else [])])

    def headline(self) -> str:
        """The accuracy alone, which stands for all; the whole line where there is none."""
        if self.accuracy is None:
            return self.line()
        return f"accuracy {figure_text(self.accuracy)}"

    def better_than(self, other: "Figures | None", by: float = 0.0) -> bool:
        """Return whether the accuracy is higher by more than `by`.

        Where it is equal, or one of them has none, the loss must be lower by that. A loss that is
        NaN is worse than any: the answers are no numbers, and their accuracy is that of naming the
        first class.
        """
        if other is None:
            return True
        if isnan(self.loss) or isnan(other.loss):
            return not isnan(self.loss)
        former = other.accuracy
        if self.accuracy is not None and former is not None and self.accuracy != former:
            return self.accuracy > former + by
        return self.loss < other.loss - by


def refuse_names(names: Collection[str]) -> None:
    """Raises ValueError if further figures cannot have these names."""
    reserved = sorted(_RESERVED.intersection(names))
    if reserved:
        raise ValueError(
            f"expected other figures under names of their own, got {', '.join(reserved)}"
        )
    if len(names) > MOST_OTHERS:
        raise ValueError(f"expected at most {MOST_OTHERS} other figures, got {len(names)}")
    wrong = [name for name in names if not (0 < len(name) <= LONGEST_OTHER and name.isprintable())]
    if wrong:
        raise ValueError(
            f"expected names of 1 to {LONGEST_OTHER} printable characters, got {wrong[0]!r:.120}"
        )


def largest(values: Sequence[float]) -> float:
    """Return the largest figure; NaN if one is.

    Every comparison with NaN is false, so `max(0.0, nan)` is 0.0: what must end a training is gone.
    """
    if any(map(isnan, values)):
        return nan
    return max(values)


def figure_text(value: float) -> str:
    """A figure of any size: `0.8125`, `12345.68`, `1.235e-05`."""
    size = abs(value)
    if size == 0 or 1e-3 <= size < 1e3:
        return f"{value:.4f}"
    if 1e3 <= size < 1e7:
        return f"{value:.2f}"
    return f"{value:.4g}"


@dataclass(frozen=True)
class ClassCount:
    """Examples of a class, or with a label."""

    label: Name
    """Its name."""
    right: Count
    """Examples of it that were named so."""
    wrong: Count
    """Others that were named so."""
    missed: Count
    """Examples of it that were not named so."""


@dataclass(frozen=True)
class MixUp:
    """Examples of one class that were taken for another."""

    true: Name
    """Class that they are of."""
    predicted: Name
    """Class that they were taken for."""
    examples: Count
    """Number of them."""


@dataclass(frozen=True)
class NodeTasks:
    """A machine and the tasks that the inventory gives it."""

    name: Name
    address: Name
    tasks: tuple[Name, ...]


@dataclass(frozen=True)
class Seen:
    """A worker as the membership has it. `departures`: since this coordinator began."""

    phase: str
    departures: int
    work: str | None = None


@dataclass(frozen=True)
class StalenessCount:
    """Steps by staleness: `counts[i]` of them above bound `i - 1` and at most bound `i`."""

    counts: Annotated[tuple[Count, ...], Field(min_length=9, max_length=9)] = (0,) * (
        len(STALENESS_BOUNDS) + 1
    )
    total: Number = 0.0
    maximum: Number | None = None

    def added(self, step_staleness: Sequence[float]) -> "StalenessCount":
        """Return the count with these steps too."""
        counts = list(self.counts)
        for staleness in step_staleness:
            counts[bisect_left(STALENESS_BOUNDS, staleness)] += 1
        if self.maximum is None:
            values = step_staleness
        else:
            values = (self.maximum, *step_staleness)
        return StalenessCount(
            tuple(counts), self.total + sum(step_staleness), max(values, default=None)
        )

    def mean(self) -> float | None:
        """Return the mean in updates; None before the first step."""
        if any(self.counts):
            return self.total / sum(self.counts)
        return None


@dataclass(frozen=True)
class RoleCount:
    """What one role process has done so far."""

    windows: Count
    departures: Count
    step_seconds: Seconds | None
    memory_bytes: Count | None


@dataclass(frozen=True)
class TrainFigures:
    """The counters of a training that the picture shows."""

    epoch: Count = 0
    """Epochs that are finished."""
    planned_epochs: Count = 0
    """Epochs of a fit."""
    learning_rate: Number | None = None
    """The learning rate of the latest update."""
    updates_applied: Count | None = None
    """Updates in the whole surviving history."""
    duplicates_dropped: Count | None = None
    """Updates that came twice and counted once."""
    rolled_back: Count = 0
    """Updates that were lost with a process and ran again."""
    resumptions: Count = 0
    """Times that another coordinator resumed the run."""
    checkpoints: Count = 0
    """Checkpoints that were written."""


@dataclass(frozen=True)
class TrainCount(TrainFigures):
    """The counters of a training."""

    part_seconds: Mapping[Name, Seconds] = field(default_factory=dict)
    pulled_bytes: Count = 0
    pushed_bytes: Count = 0
    counted_steps: Count = 0
    staleness: StalenessCount = StalenessCount()

    @property
    def updates_done(self) -> int | None:
        """Return the updates that were applied, with those that were lost and ran again."""
        if self.updates_applied is None:
            return None
        return self.updates_applied + self.rolled_back


LARGEST_MATRIX = 30
"""Classes of a confusion matrix that a person can read."""
MOST_COUNTED = 1000
"""Classes that are counted one by one."""
MOST_MIX_UPS = 20
LONGEST_LABEL = 100

Matrix = tuple[tuple[int, ...], ...]
"""Examples by true and predicted class."""


@dataclass(frozen=True)
class Classes:
    """What is kept of an evaluation by class: `labels` and `rows`, or the counts."""

    labels: tuple[str, ...] = ()
    rows: Matrix = ()
    counts: tuple[ClassCount, ...] = ()
    mix_ups: tuple[MixUp, ...] = ()


def by_class(
    labels: Sequence[str],
    rows: Sequence[Sequence[int]],
    counts: tuple[ClassCount, ...] = (),
    mix_ups: tuple[MixUp, ...] = (),
) -> Classes:
    """Return the matrix where a person can read it, else counts and the most frequent mistakes.

    `rows` has shape (labels, labels), rows the true class. Without rows `counts` and `mix_ups` stay
    as they are. Raises ValueError where the matrix has another shape.
    """
    if rows and {len(labels)} != {len(rows), *map(len, rows)}:
        raise ValueError(
            f"expected {len(labels)} rows and columns, got {[len(row) for row in rows]}"
        )
    if not rows:
        counted = tuple(
            replace(count, label=encodable_label(count.label)) for count in counts[:MOST_COUNTED]
        )
        return Classes(counts=counted, mix_ups=mix_ups[:MOST_MIX_UPS])
    labels = tuple(map(encodable_label, labels))
    if len(rows) <= LARGEST_MATRIX:
        return Classes(labels, tuple(map(tuple, rows)))
    return Classes(counts=counts_of(labels, rows)[:MOST_COUNTED], mix_ups=mix_ups_of(labels, rows))


def encodable_label(label: str) -> str:
    """Return the label as it can be written anywhere.

    A folder's name, and so a label, need not be UTF-8.
    """
    return label.encode("utf-8", "backslashreplace").decode()


def counts_of(labels: Sequence[str], rows: Sequence[Sequence[int]]) -> tuple[ClassCount, ...]:
    """Count each class; of more than `MOST_COUNTED` the one with the most examples is first."""
    true = [sum(row) for row in rows]
    predicted = [sum(column) for column in zip(*rows, strict=True)]
    places: Sequence[int] = range(len(labels))
    if len(labels) > MOST_COUNTED:
        places = sorted(places, key=lambda place: -true[place])
    return tuple(
        ClassCount(
            labels[at][:LONGEST_LABEL],
            rows[at][at],
            predicted[at] - rows[at][at],
            true[at] - rows[at][at],
        )
        for at in places
    )


def mix_ups_of(labels: Sequence[str], rows: Sequence[Sequence[int]]) -> tuple[MixUp, ...]:
    """The most frequent mistakes, the most frequent first."""
    mistakes = (
        (examples, -true, -predicted)
        for true, row in enumerate(rows)
        for predicted, examples in enumerate(row)
        if examples and predicted != true
    )
    return tuple(
        MixUp(labels[-true][:LONGEST_LABEL], labels[-predicted][:LONGEST_LABEL], examples)
        for examples, true, predicted in nlargest(MOST_MIX_UPS, mistakes)
    )


def shared(kind: type[Any], source: object) -> dict[str, Any]:
    """Return the fields of this data class, as `source` has them."""
    return {field.name: getattr(source, field.name) for field in fields(kind)}
