"""How well each class is known, for page and report: confusion, classes, frequent mistakes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from cluster.pages.run_charts import NAMING, unit_of
from cluster.pages.words import label, terms
from core.status.classes import LARGEST_MATRIX, counts_of
from core.status.parts import MULTILABEL, ClassCount, MixUp
from core.status.view import ConfusionView, RunView

HEAT_STEPS = 8
"""Shades of the confusion matrix: classes heat-0 to heat-8 of the style sheet."""
MOST_ROWS = 100
"""Rows of the table of classes: of more there are those that are known worst."""
TITLES = {
    "matrix": (
        "Confusion matrix",
        (
            "Predicted classes against true classes in the latest evaluation, with precision,"
            " recall and F1 of each class."
        ),
    ),
    "labels": ("Labels", "Precision, recall and F1 of each label in the latest evaluation."),
    "classes": (
        "Classes",
        (
            "The most frequent mistakes of the latest evaluation, and the classes that are known"
            " worst."
        ),
    ),
}
"""Title and hint."""


@dataclass(frozen=True)
class ClassScores:
    """A class in the per-class table."""

    name: str
    precision: float
    recall: float
    f1: float
    windows: int


@dataclass(frozen=True)
class ConfusionCell:
    """Windows of one class that were given one name; `heat` is the shade, by share of the row."""

    windows: int
    share: float
    heat: int
    right: bool


@dataclass(frozen=True)
class ClassPanel:
    """The part of page and report about classes; without rows nothing has been evaluated yet."""

    title: str
    hint: str
    kind: str
    """`class` or `label`."""
    terms: Mapping[str, str]
    """The terms of the run."""
    evaluated: str = ""
    """Split that was evaluated, e.g. `Test set, after epoch 7`."""
    cells: tuple[tuple[str, list[ConfusionCell]], ...] = ()
    """Rows of the matrix with their names; none where there is no matrix."""
    mix_ups: tuple[MixUp, ...] = ()
    rows: tuple[ClassScores, ...] = ()
    left_out: int = 0
    """Classes that have no row."""


def class_panel(view: RunView) -> ClassPanel | None:
    """The part about classes; None where the task has none."""
    evaluation = view.confusion or view.classes
    run_terms = terms(unit_of(view))
    title, hint = TITLES["matrix"]
    if view.task_type == MULTILABEL:
        title, hint = TITLES["labels"]
    elif view.classes is not None:
        title, hint = TITLES["classes"]
    panel = ClassPanel(title, hint, "label" if view.task_type == MULTILABEL else "class", run_terms)
    if evaluation is None:
        awaited = (
            view.job != "pi" and view.task_type in NAMING and not view.figures.keys() - {"train"}
        )
        if awaited:
            return panel
        return None
    evaluated = {"test": "test set", "validation": run_terms["held_out"]}.get(
        evaluation.split, evaluation.split
    )
    evaluated = f"{evaluated[:1].upper()}{evaluated[1:]}"
    if evaluation.epoch is not None:
        evaluated += f", after epoch {evaluation.epoch}"
    if isinstance(evaluation, ConfusionView):
        cells = tuple(
            (label(name), row)
            for name, row in zip(evaluation.labels, confusion_of(evaluation), strict=True)
        )
        rows = tuple(map(row_of, counts_of(evaluation.labels, evaluation.rows)))
        return replace(panel, evaluated=evaluated, cells=cells, rows=rows)
    rows = tuple(map(row_of, evaluation.counts))
    if len(rows) > LARGEST_MATRIX:
        rows = tuple(sorted(rows, key=lambda row: (row.f1, -row.windows)))
    left_out = max(0, len(rows) - MOST_ROWS)
    return replace(
        panel,
        evaluated=evaluated,
        mix_ups=evaluation.mix_ups,
        rows=rows[:MOST_ROWS],
        left_out=left_out,
    )


def confusion_of(confusion: ConfusionView) -> list[list[ConfusionCell]]:
    """The matrix with the shade of each cell."""
    cells = []
    for true, row in enumerate(confusion.rows):
        total = sum(row)
        shares = [windows / total if total else 0.0 for windows in row]
        # A single window of many still shows.
        heats = [max(1, round(HEAT_STEPS * share)) if share > 0.0 else 0 for share in shares]
        right = [true == predicted for predicted in range(len(row))]
        cells.append(list(map(ConfusionCell, row, shares, heats, right)))
    return cells


def row_of(count: ClassCount) -> ClassScores:
    """Precision, recall and F1 of a class; 0 where nothing was given, or deserves, the name."""
    predicted = count.right + count.wrong
    deserve = count.right + count.missed
    both = predicted + deserve
    return ClassScores(
        count.label,
        count.right / predicted if predicted else 0.0,
        count.right / deserve if deserve else 0.0,
        2 * count.right / both if both else 0.0,
        deserve,
    )
