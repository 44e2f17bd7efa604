"""The templates with their filters, and what the live page draws with them, whole or in part.

Page and report both draw how well each class is known: confusion, classes, frequent mistakes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from cluster.pages import panels, words
from cluster.pages.charts import Chart
from cluster.pages.run_charts import NAMING, charts_of, unit_of
from cluster.pages.words import label, terms
from core import web
from core.status.parts import LARGEST_MATRIX, MULTILABEL, ClassCount, MixUp, counts_of
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


STATIC = Path(__file__).with_name("static")
LATEST_EVENTS = 60


def environment() -> Environment:
    """Return the one of this process, which keeps the compiled templates."""
    templates = Environment(
        loader=PackageLoader("cluster.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    templates.globals.update(inline=inline, words=words.WORDS)
    filters = (
        *(words.count, words.figure, words.percent, words.short, words.amount, words.duration),
        *(panels.remaining, panels.progress_percent, panels.progress_words, panels.traffic),
        *(words.label, moment),
    )
    templates.filters.update({function.__name__: function for function in filters})
    templates.filters.update(run_state=words.run_state, sweep_state=words.sweep_state)
    return templates


def moment(time: str) -> str:
    """An ISO time as people read it: `2026-11-21 23:35:36 UTC`."""
    try:
        return datetime.fromisoformat(time).strftime("%Y-%m-%d %H:%M:%S UTC")
    except ValueError:
        return time


def inline(name: str) -> Markup:
    """Return a file of `static/`, or of the shared style, to stand inside <script> or <style> tags.

    A page that no server sends carries its files this way.
    """
    folder = next(folder for folder in (STATIC, web.STATIC) if (folder / name).is_file())
    text = (folder / name).read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("//# sourceMappingURL=")]
    return Markup(
        "\n".join(lines).replace("</script", r"<\/script").replace("</style", r"<\/style")
    )


class Drawing:
    """Draws pages; for one thread at a time."""

    def __init__(self) -> None:
        self._environment = environment()
        self._written: dict[str, tuple[Chart, str]] = {}
        self._macros: Any = self._environment.get_template("parts.html").module

    def page(self, view: RunView) -> str:
        """The whole document. What it needs besides lies in `static/`."""
        charts = charts_of(view)
        return self._environment.get_template("live.html").render(
            view=view,
            charts=charts,
            layout=_layout(view, charts),
            fragments=self._markup(view, charts),
            classes=class_panel(view),
            glossary=words.glossary(unit_of(view)),
        )

    def fragments(self, view: RunView) -> dict[str, str]:
        """Return what changes, by the name of its event; `chart-...` is JSON, the rest HTML."""
        charts = charts_of(view)
        markup = {name: str(text) for name, text in self._markup(view, charts).items()}
        return {**markup, **{f"chart-{chart.id}": self._json(chart) for chart in charts}}

    def _json(self, chart: Chart) -> str:
        """Return the chart's JSON: most are as they were, and comparing costs less than writing."""
        written_chart = self._written.get(chart.id)
        if written_chart is None or written_chart[0] != chart:
            written_chart = self._written[chart.id] = chart, str(chart.json())
        return written_chart[1]

    def _markup(self, view: RunView, charts: list[Chart]) -> dict[str, Any]:
        macros = self._macros
        if view.progress:
            stage = words.stage(view.progress.stage, unit_of(view))
        else:
            stage = ""
        fragments = {
            "head": macros.head(view, stage, _layout(view, charts)),
            "tiles": macros.tiles(panels.tiles_of(view)),
            "picture": macros.picture(
                panels.picture_of(view), unit_of(view), flows=view.job != "pi"
            ),
            "log": macros.log(view.events[: -LATEST_EVENTS - 1 : -1]),
        }
        if view.sweep is not None:
            grid = panels.sweep_grid(view.sweep)
            fragments["sweep"] = macros.table(grid.heads, grid.rows)
        classes = class_panel(view)
        if classes is not None:
            fragments["confusion"] = macros.classes(classes)
        return fragments


def _layout(view: RunView, charts: list[Chart]) -> str:
    """Changes when the page has other parts than it was made with."""
    classes = class_panel(view)
    return " ".join(
        [
            view.run,
            view.job,
            *(chart.id for chart in charts),
            classes.title if classes else "",
            *(["sweep"] if view.sweep else []),
        ]
    )
