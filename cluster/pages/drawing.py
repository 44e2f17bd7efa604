"""The templates with their filters, and what the live page draws with them, whole or in part."""

from datetime import datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from cluster.pages import panels, words
from cluster.pages.charts import Chart
from cluster.pages.class_tables import class_panel
from cluster.pages.run_charts import charts_of, unit_of
from core import web
from core.status.view import RunView

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
