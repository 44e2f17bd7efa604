"""`report.html` of one run: one file with everything in it, by the live page's templates.

Its tables say who was busy, what each worker did, and how the epochs went.
"""

from cluster.pages.drawing import class_panel, environment
from cluster.pages.facts import ended_root
from cluster.pages.files import StoredRun
from cluster.pages.rows import ROWS, charts_named, charts_of, table_of, tiles_of
from cluster.pages.special import precision_recall, unit_of
from cluster.pages.words import glossary

MOST_EVENTS = 500


def report(run: StoredRun) -> str:
    """The whole file."""
    view = run.view
    root = ended_root(run)
    live = charts_of(view)
    more = [chart for name in ROWS["ended_charts"] for chart in charts_named(name, view)]
    tested = precision_recall(run.result.get("precision_recall"), unit_of(view))
    charts = [chart for chart in (*live, *more, tested) if not chart.is_empty]
    classes = class_panel(view)
    return (
        environment()
        .get_template("report.html")
        .render(
            title=f"{view.job} on {view.cluster}",
            view=view,
            name=run.name,
            tiles=tiles_of("ended", root),
            charts=[chart for chart in charts if chart.kind != "spans"],
            timelines=[chart for chart in charts if chart.kind == "spans"],
            absent=[chart.title for chart in live if chart.is_empty],
            classes=classes if classes and classes["table"] else None,
            tables={name: table_of(name, root) for name in ROWS["report"]},
            events=view.events[-MOST_EVENTS:],
            glossary=glossary(unit_of(view)),
        )
    )
