"""The templates with their filters, and what the live page draws with them, whole or in part.

Page and report both draw how well each class is known: confusion, classes, frequent mistakes.
"""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from cluster.pages import words
from cluster.pages.charts import Chart
from cluster.pages.facts import live_tiles
from cluster.pages.rows import NAMING, ROWS, charts_of, table_of
from cluster.pages.special import place_of, unit_of, workers_of
from cluster.pages.words import terms
from core import web
from core.status.parts import LARGEST_MATRIX, MULTILABEL, ClassCount, counts_of
from core.status.view import (
    ConfusionView,
    NodeView,
    RoleView,
    RunView,
    SweepCellView,
    SweepView,
)

STATIC = Path(__file__).with_name("static")
LATEST_EVENTS = 60
HEAT_STEPS = 8
"""Shades of the confusion matrix: classes heat-0 to heat-8 of the style sheet."""
MOST_ROWS = 100
"""Rows of the table of classes: of more there are those that are known worst."""
MOST_CARDS = 24
"""Cards of workers: of more there are those in the worst state, then those that were away, then the
slowest."""
TONES = ("bad", "warning", "waiting", "well", "off")
"""Tones from the worst to the best."""


def class_panel(view: RunView) -> dict[str, Any] | None:
    """The part about classes; None where the task has none, without `table` before the first."""
    evaluation = view.confusion or view.classes
    run_terms = terms(unit_of(view))
    if view.classes is None:
        kind = "matrix"
    else:
        kind = "classes"
    if view.task_type == MULTILABEL:
        kind = "labels"
    panel = {"terms": run_terms, "table": None, **ROWS["classes"][kind]}
    if evaluation is None:
        expected = view.job != "pi" and view.task_type in NAMING
        if expected and not view.figures.keys() - {"train"}:
            return panel
        return None
    if isinstance(evaluation, ConfusionView):
        counts = counts_of(evaluation.labels, evaluation.rows)
    else:
        counts = evaluation.counts
    scores = [scores_of(count) for count in counts]
    if len(scores) > LARGEST_MATRIX:
        scores.sort(key=lambda row: (row["f1"], -row["windows"]))
    phrases = {**run_terms, "kind": "label" if kind == "labels" else "class"}
    root = {"view": view, "computed": {"classes": scores[:MOST_ROWS]}, "words": phrases}
    splits = {"test": "test set", "validation": run_terms["held_out"]}
    split = splits.get(evaluation.split, evaluation.split)
    return panel | {
        "evaluated": f"{split[:1].upper()}{split[1:]}",
        "epoch": evaluation.epoch,
        "confusion": view.confusion,
        "mix_ups": table_of("mix_ups", root),
        "table": table_of("classes", root),
        "classes": len(scores),
    }


def heat(share: float) -> int:
    """The shade of a share of a row; a single window of many still shows."""
    if share > 0.0:
        return max(1, round(HEAT_STEPS * share))
    return 0


def scores_of(count: ClassCount) -> dict[str, Any]:
    """Precision, recall and F1 of a class; 0 where nothing was given, or deserves, the name."""
    predicted = count.right + count.wrong
    deserve = count.right + count.missed
    return {
        "name": count.label,
        "precision": count.right / (predicted or 1),
        "recall": count.right / (deserve or 1),
        "f1": 2 * count.right / (predicted + deserve or 1),
        "windows": deserve,
    }


def picture_of(view: RunView) -> dict[str, Any]:
    """The nodes in two rows, those that serve and those that only work, and what flows between.

    Of many workers it has those that stand out, and `folded` is about the others.
    """
    roles = [role for node in view.nodes for role in node.roles]
    stores = [role for role in roles if role.task.startswith("ps:")]
    folded = _inconspicuous([role for _, role in workers_of(view)])
    rows: dict[str, list[NodeView]] = {"servers": [], "workers": []}
    for node in view.nodes:
        only_works = all(role.task.startswith("worker:") for role in node.roles)
        cards = tuple(role for role in node.roles if role not in folded)
        if cards:
            rows["workers" if only_works else "servers"].append(replace(node, roles=cards))
    speeds = [role.windows_per_second for role in folded if role.windows_per_second is not None]
    return {
        **rows,
        "folded": len(folded),
        "slowest": min(speeds, default=None),
        "fastest": max((role.windows_per_second or 0.0 for role in roles), default=0.0),
        "pull": _total(role.sent_bytes_per_second for role in stores),
        "push": _total(role.received_bytes_per_second for role in stores),
    }


def _inconspicuous(workers: list[RoleView]) -> list[RoleView]:
    """The workers without a card: none of few; else those that work and are about as fast."""
    if len(workers) <= MOST_CARDS:
        return []
    workers = sorted(
        workers,
        key=lambda role: (
            TONES.index(words.role_state(role.state).tone),
            -role.departures,
            role.windows_per_second or 0.0,
        ),
    )
    return workers[MOST_CARDS:]


def _total(values: Iterable[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    if numbers:
        return sum(numbers)
    return None


def by_task(roles: Iterable[RoleView]) -> list[RoleView]:
    """The roles in the order of a card."""
    return sorted(roles, key=lambda role: place_of(role.task))


def worst_tone(roles: Iterable[RoleView]) -> str:
    """The tone of a machine: the worst of its roles'."""
    tones = {words.role_state(role.state).tone for role in roles}
    return next((tone for tone in TONES if tone in tones), "off")


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
        *(words.label, words.moment, words.sign, words.shown),
        *(remaining, heat, by_task, worst_tone),
    )
    templates.filters.update({function.__name__: function for function in filters})
    templates.filters.update(
        run_state=words.run_state, sweep_state=words.sweep_state, role_state=words.role_state
    )
    return templates


def remaining(view: RunView) -> str:
    """The time left, in words."""
    if view.state in ("done", "cancelled", "failed"):
        return f"ended after {words.duration(view.elapsed_seconds)}"
    if view.remaining_seconds is None:
        return "time left is known once the workers have replied"
    return f"about {words.duration(view.remaining_seconds)} left"


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
        unit = unit_of(view)
        if view.progress:
            stage = words.stage(view.progress.stage, unit)
        else:
            stage = ""
        fragments = {
            "head": macros.head(view, stage, _layout(view, charts)),
            "tiles": macros.tiles(live_tiles(view)),
            "picture": macros.picture(picture_of(view), unit, flows=view.job != "pi"),
            "log": macros.log(view.events[: -LATEST_EVENTS - 1 : -1]),
        }
        if view.sweep is not None:
            fragments["sweep"] = macros.table(*sweep_grid(view.sweep))
        classes = class_panel(view)
        if classes is not None:
            fragments["confusion"] = macros.classes(classes)
        return fragments


def sweep_grid(sweep: SweepView) -> tuple[list[str], list[list[str]]]:
    """The runs of a sweep as a table, filled as far as it is: a row a setting, a column a seed."""
    seeds = [*dict.fromkeys(cell.seed for cell in sweep.cells)]
    rows = dict[str, dict[int, str]]()
    for cell in sweep.cells:
        rows.setdefault(cell.settings or "as the inventory says", {})[cell.seed] = _run_words(cell)
    heads = ["settings", *(f"seed {seed}" for seed in seeds)]
    return heads, [
        [settings, *(cells.get(seed, "") for seed in seeds)] for settings, cells in rows.items()
    ]


def _run_words(cell: SweepCellView) -> str:
    if cell.state == "running":
        return f"{words.percent(cell.share, 0)} on {cell.node}"
    if cell.state == "finished":
        if cell.accuracy is None:
            return "done"
        return words.figure(cell.accuracy)
    return cell.state


def _layout(view: RunView, charts: list[Chart]) -> str:
    """Changes when the page has other parts than it was made with."""
    classes = class_panel(view)
    return " ".join(
        [
            view.run,
            view.job,
            *(chart.id for chart in charts),
            classes["title"] if classes else "",
            *(["sweep"] if view.sweep else []),
        ]
    )
