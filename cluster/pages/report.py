"""`report.html` of one run: one file with everything in it, by the live page's templates.

Its tables say who was busy, what each worker did, and how the epochs went.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from cluster.pages.drawing import class_panel, environment
from cluster.pages.files import ROWS, Column, StoredRun, number_of, object_of, part_of
from cluster.pages.panels import Tile, other_tiles
from cluster.pages.run_charts import (
    NAMING,
    charts_of,
    others_of,
    place_of,
    precision_recall,
    time_of,
    unit_of,
    work_of_workers,
)
from cluster.pages.words import (
    NOTHING,
    amount,
    count,
    duration,
    figure,
    figure_word,
    glossary,
    label,
    measure,
    percent,
    rate,
    short,
    terms,
    writer_of,
)
from core.status.view import RunView, TrainView

Table = tuple[list[str], list[list[str]]]
"""Heads and rows."""
MOST_OTHER_COLUMNS = 8
MOST_WRONG = 100
"""Rows of the table of what was wrong."""


def value_text(value: Any) -> str:
    """Return a value of a settings file as a page shows it."""
    match value:
        case bool():
            if value:
                return "yes"
            return "no"
        case int() if abs(value) >= 10_000:
            return f"{value:,}"
        case float():
            return f"{value:g}"
        case list():
            return ", ".join(value_text(element) for element in value)
        case _:
            return str(value)


def _table_of(entries: Any, columns: Mapping[str, Column], **terms: str) -> Table | None:
    """Return a row for each object of a list in a result, by its columns; None without any.

    `terms` stand for those in braces of the heads.
    """
    if not isinstance(entries, list) or not entries:
        return None
    rows = [_row(entry, columns) for entry in entries if isinstance(entry, dict)]
    return [head.format(**terms) for head in columns], rows


def _row(entry: Mapping[str, Any], columns: Mapping[str, Column]) -> list[str]:
    return [cell_text(entry, column) for column in columns.values()]


def cell_text(entry: Mapping[str, Any], column: Column) -> str:
    """Return the value that a column, or a tile, of `rows.yaml` is about."""
    if column["as"] in ("value", "label"):
        value = part_of(entry, *column["of"])
        if not value and "else" in column:
            value = column["else"]
        text = value_text(value)
        if column["as"] == "label":
            return label(text)
        return text
    return writer_of(column["as"])(number_of(entry, *column["of"]))


def busy_table(run: StoredRun) -> Table | None:
    """Return what ran where and how busy it was; None for a run that did not measure it."""
    return _table_of(part_of(run.result, "busy", "tasks"), ROWS["busy"])


def group_table(run: StoredRun) -> Table | None:
    """Return a row for each person of the test, worst first; None without people."""
    return _table_of(part_of(run.result, "by_group"), ROWS["by_group"], **_heads(run))


def wrong_table(run: StoredRun) -> Table | None:
    """Return a row for each stretch of a test that was taken for another class; None without."""
    entries = part_of(run.result, "wrong")
    if isinstance(entries, list):
        entries = [
            {**entry, "stretch": _stretch(entry)} for entry in entries if isinstance(entry, dict)
        ]
        entries = entries[:MOST_WRONG]
    return _table_of(entries, ROWS["wrong"], **_heads(run))


def _heads(run: StoredRun) -> dict[str, str]:
    by = part_of(run.result, "dataset", "held_out", "by")
    return {"by": value_text(by or "person"), "unit": unit_of(run.view)}


def _stretch(stretch: Mapping[str, Any]) -> str:
    ends = [count(number_of(stretch, end)) for end in ("first", "last")]
    return " to ".join(dict.fromkeys(ends))


SPAN_STATES = ("working", "suspected", "away")


def worker_table(view: RunView) -> Table | None:
    """Return a row for each worker of the inventory or of the run; None where there are none."""
    unit = unit_of(view)
    rows = dict[str, list[str]]()
    for node in view.nodes:
        for role in node.roles:
            if role.task.startswith("worker:"):
                shares = _shares(view, role.task)
                speeds = [
                    sample.workers[role.task]
                    for sample in view.samples
                    if role.task in sample.workers
                ]
                rows[role.task] = [
                    role.task,
                    node.name,
                    count(role.windows),
                    short(sum(speeds) / len(speeds) if speeds else None),
                    duration(role.step_seconds),
                    *(percent(shares.get(state)) for state in SPAN_STATES),
                    f"{role.departures}\N{MULTIPLICATION SIGN}",
                ]
    heads = ["worker", "node", unit, f"{unit}/s", "a step", *SPAN_STATES, "left"]
    if rows:
        return (heads, [rows[task] for task in sorted(rows, key=place_of)])
    return None


def _shares(view: RunView, task: str) -> dict[str, float]:
    """Return a worker's shares of the time since it first was there, by state; empty before."""
    seconds = dict.fromkeys(SPAN_STATES, 0.0)
    for span in view.spans:
        if span.task == task:
            if span.end_seconds is None:
                end = view.elapsed_seconds
            else:
                end = span.end_seconds
            seconds[span.state] = seconds.get(span.state, 0.0) + max(0.0, end - span.begin_seconds)
    total = sum(seconds.values())
    if total:
        return {state: spent / total for state, spent in seconds.items()}
    return {}


def epoch_table(train: TrainView) -> Table:
    """The table of all epochs."""
    custom_figures = others_of(train)[:MOST_OTHER_COLUMNS]
    columns = ROWS["epochs"] | {
        f"held-out {figure_word(name).word}": {"of": ["validation_others", name], "as": "measure"}
        for name in custom_figures
    }
    heads = [*columns, "learning rate"]
    rows = [[*_row(vars(epoch), columns), f"{epoch.learning_rate:.2g}"] for epoch in train.epochs]
    filled_columns = [
        place for place in range(len(heads)) if any(row[place] != NOTHING for row in rows)
    ]
    return [heads[place] for place in filled_columns], [
        [row[place] for place in filled_columns] for row in rows
    ]


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
    drawn = [*run_charts, *of_points, work_of_workers(view), precision_recall(run, unit_of(view))]
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
        if planned is None:
            scheduled = "in the whole history"
        else:
            scheduled = f"of {count(planned)}"
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
