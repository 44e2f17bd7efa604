"""`report.html` of one run: one file with everything in it, by the live page's templates."""

from collections.abc import Iterator, Mapping
from typing import Any

from cluster.pages.class_tables import class_panel
from cluster.pages.curves import precision_recall
from cluster.pages.drawing import environment
from cluster.pages.panels import Tile, other_tiles
from cluster.pages.run_charts import (
    NAMING,
    charts_of,
    time_of,
    unit_of,
    worked,
)
from cluster.pages.run_files import ROWS, StoredRun, number_of, object_of, part_of
from cluster.pages.run_tables import (
    busy_table,
    cell_text,
    epoch_table,
    group_table,
    value_text,
    worker_table,
    wrong_table,
)
from cluster.pages.words import (
    amount,
    count,
    duration,
    figure,
    glossary,
    measure,
    percent,
    rate,
    short,
    terms,
)
from core.status.view import RunView

MOST_EVENTS = 500
MOST_OTHER_TILES = 8
EPOCHS_HINT = (
    "Figures of {held_out} come from a part of the training set that is not trained on: they choose"
    " the best epoch."
)


def report(run: StoredRun) -> str:
    """The whole file."""
    view = run.view
    templates = environment()
    run_charts = charts_of(view)
    classes = class_panel(view)
    if view.pi:
        of_points = [time_of(view.pi)]
    else:
        of_points = []
    drawn = [*run_charts, *of_points, worked(view), precision_recall(run, unit_of(view))]
    charts = [chart for chart in drawn if not chart.is_empty]
    return templates.get_template("report.html").render(
        title=f"{view.job} on {view.cluster}",
        view=view,
        name=run.name,
        tiles=summary_tiles(run),
        charts=[chart for chart in charts if chart.kind != "spans"],
        timeline=next((chart for chart in charts if chart.kind == "spans"), None),
        absent=[chart.title for chart in run_charts if chart.is_empty],
        classes=classes if classes is not None and classes.rows else None,
        glossary=glossary(unit_of(view)),
        unit=unit_of(view),
        epochs_hint=EPOCHS_HINT.format(**terms(unit_of(view))),
        groups=group_table(run),
        wrong=wrong_table(run),
        workers=worker_table(view),
        busy=busy_table(run),
        epochs=epoch_table(view.train) if view.train and view.train.epochs else None,
        wire=wire_rows(run),
        survived=survived_rows(run),
        settings=settings_of(run),
        environment=environment_rows(run),
        processors=any(node.processor for node in view.nodes),
        events=view.events[-MOST_EVENTS:],
    )


def summary_tiles(run: StoredRun) -> list[Tile]:
    """The figures of a run that has ended, to look at first."""
    view = run.view
    result = run.result
    tiles = [
        Tile("Time", duration(view.elapsed_seconds), "from the first to the last moment of the job")
    ]
    if view.pi is not None:
        samples = number_of(result, "samples")
        seconds = view.elapsed_seconds
        if samples is not None and seconds > 0:
            speed = samples / seconds
        else:
            speed = None
        tiles += [
            *_tiles("pi", result, planned=short(view.pi.planned_samples)),
            Tile("Throughput", rate(speed), "samples a second, start included"),
        ]
    else:
        leak = part_of(result, "dataset", "held_out", "leak")
        tiles += _tested(view)
        tiles += [Tile("The test set", "a leak", str(leak))] if leak else []
    if view.train is not None and view.train.stopped_early is not None:
        epoch = part_of(result, "stopped_early", "epoch") or view.train.epoch
        tiles.append(Tile("Stopped early", f"epoch {count(epoch)}", view.train.stopped_early))
    if view.train is not None:
        tiles += _tiles("train", result, unit=unit_of(view))
    workers = len(
        {role.task for node in view.nodes for role in node.roles if role.task.startswith("worker:")}
    )
    return [
        *tiles,
        Tile("Workers", count(workers or part_of(result, "workers")), "processes that computed"),
    ]


def _tiles(name: str, values: Mapping[str, Any], **phrases: str) -> list[Tile]:
    """Return the tiles of this name in `rows.yaml`; `phrases` stand for those in braces."""
    return [
        Tile(row["name"], cell_text(values, row), row["hint"].format(**phrases))
        for row in ROWS[name]
    ]


def _tested(view: RunView) -> list[Tile]:
    """The figures of the test set that the task has."""
    figures = view.figures.get("test", {})
    unit = unit_of(view)
    tiles = []
    if view.task_type in NAMING or "accuracy" in figures:
        share = percent(figures.get("accuracy"), 2)
        tiles.append(Tile("Test accuracy", share, f"share of the test {unit} named correctly"))
    if view.task_type in NAMING or "f1_macro" in figures:
        f1 = figure(figures.get("f1_macro"))
        tiles.append(Tile("Macro F1", f1, "precision and recall in one, every class alike"))
    loss = Tile(
        "Test loss", measure(figures.get("loss")), "how wrong the answers are; lower is better"
    )
    return [*tiles, loss, *other_tiles(figures, f"of the test {unit}", MOST_OTHER_TILES)]


def settings_of(run: StoredRun) -> dict[str, str]:
    """Return all settings of the run, by their keys in the inventory."""
    result = run.result
    settings = {key: part_of(result, *path) for key, path in ROWS["settings"].items()}
    settings |= dict(_flat(object_of(result, "settings")))
    return {key: value_text(value) for key, value in settings.items() if value is not None}


def _flat(settings: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def wire_rows(run: StoredRun) -> list[Tile]:
    """Bytes between workers and parameter servers; none where nothing was measured."""
    pull, push = (
        number_of(run.result, "wire", f"{way}_bytes_per_step") for way in ("pull", "push")
    )
    if pull is None or push is None:
        return []
    steps = (
        number_of(run.result, "updates", "applied")
        or number_of(run.result, "updates", "scheduled")
        or 0.0
    )
    codec = part_of(run.result, "settings", "codec", "name")
    rows = [
        *_tiles("wire", run.result),
        Tile(
            "all steps", amount((pull + push) * steps), f"pull and push of {count(steps)} updates"
        ),
    ]
    return [
        *rows,
        *([Tile("codec", str(codec), "how the numbers are written on the wire")] if codec else []),
    ]


def survived_rows(run: StoredRun) -> list[Tile]:
    """Return what went wrong without ending the run."""
    result = run.result
    view = run.view
    departures = sum(role.departures for node in view.nodes for role in node.roles)
    suspected = sum(span.state == "suspected" for span in view.spans)
    rows = [
        Tile(
            "workers lost",
            count(departures),
            "times a worker left the cluster; its work was done by others",
        ),
        Tile(
            "suspicions",
            count(suspected),
            "times a worker was silent for longer than its work should take",
        ),
    ]
    if view.train is not None:
        planned = number_of(result, "updates", "scheduled")
        scheduled = "in the whole history" if planned is None else f"of {count(planned)}"
        rows += _tiles("survived", vars(view.train), planned=scheduled)
    injected = object_of(result, "chaos", "injected")
    return rows + [
        Tile(f"injected: {fault}", count(times), "by --chaos") for fault, times in injected.items()
    ]


def environment_rows(run: StoredRun) -> list[Tile]:
    """Return what the run ran on, as far as it was written down."""
    tiles = _tiles("environment", run.environment)
    return [
        tile
        for tile, row in zip(tiles, ROWS["environment"], strict=True)
        if part_of(run.environment, *row["of"]) is not None
    ]
