"""`report.html` of one run: one file with everything in it, drawn with the templates of the live page."""

from typing import Any

from cluster.pages.charts import Chart, Series
from cluster.pages.drawing import confusion_part, environment
from cluster.pages.panels import picture_of, remaining
from cluster.pages.report_tables import (
    environment_rows,
    epoch_table,
    settings_of,
    summary_tiles,
    survived_rows,
    wire_rows,
    worker_rows,
)
from cluster.pages.run_charts import charts_of, place_of, time_of, unit_of
from cluster.pages.run_files import Run
from cluster.pages.words import EVENT_TONES, GLOSSARY, run_state
from cluster.status.view import RunView

MOST_EVENTS = 500


def report(run: Run) -> str:
    """The whole file."""
    view = run.view
    made = environment()
    parts: Any = made.get_template("parts.html").module
    charts = [
        chart
        for chart in [*charts_of(view), *([time_of(view.pi)] if view.pi else []), _worked(view)]
        if not chart.is_empty
    ]
    absent = [chart.title for chart in charts_of(view) if chart.is_empty]
    return made.get_template("report.html").render(
        title=f"{view.job} on {view.cluster}",
        view=view,
        name=run.name,
        meaning=run_state(view.state),
        left=remaining(view),
        tiles=summary_tiles(run),
        charts=[chart for chart in charts if chart.kind != "spans"],
        timeline=next((chart for chart in charts if chart.kind == "spans"), None),
        absent=absent,
        confusion=confusion_part(parts, view) if view.confusion is not None else None,
        picture=picture_of(view),
        unit=unit_of(view),
        workers=worker_rows(view),
        epochs=epoch_table(view.train.epochs) if view.train and view.train.epochs else None,
        wire=wire_rows(run),
        survived=survived_rows(run),
        settings=settings_of(run),
        environment=environment_rows(run),
        processors=any(node.processor for node in view.nodes),
        events=view.events[-MOST_EVENTS:],
        tones=EVENT_TONES,
        glossary=GLOSSARY,
    )


def _worked(view: RunView) -> Chart:
    """What each worker did in the whole run."""
    unit = unit_of(view)
    done = [
        (role.task, role.windows) for node in view.nodes for role in node.roles if role.task.startswith("worker:")
    ]  # fmt: skip
    done.sort(key=lambda entry: place_of(entry[0]))
    worked = any(windows for _, windows in done)
    return Chart(
        id="worked",
        title="Work done by each worker",
        hint=f"{unit.capitalize()} worked off in the whole run. Uneven bars: uneven processors, or workers that were "
        "away.",
        empty="was not written down in this run",
        series=(
            Series(
                unit, tuple((place, float(windows)) for place, (_, windows) in enumerate(done)) if worked else (), 0
            ),
        ),
        kind="bars",
        x_label="worker",
        y_label=unit,
        labels=tuple(task.removeprefix("worker:") for task, _ in done),
        from_zero=True,
    )
