"""`report.html` of one run: one file with everything in it, drawn with the templates of the live page."""

from collections.abc import Iterator, Mapping
from typing import Any

from cluster.pages.class_tables import class_panel
from cluster.pages.curves import precision_recall
from cluster.pages.drawing import environment
from cluster.pages.panels import Tile, other_tiles
from cluster.pages.recognised import recognised, recognised_tiles
from cluster.pages.run_charts import NAMING, charts_of, others_of, place_of, time_of, unit_of, worked
from cluster.pages.run_files import Run, number_of, part_of
from cluster.pages.words import (
    NOTHING,
    amount,
    count,
    duration,
    figure,
    figure_word,
    give_or_take,
    glossary,
    measure,
    percent,
    rate,
    short,
    terms,
)
from cluster.status.view import RunView, TrainView

MOST_EVENTS = 500
MOST_OTHER_TILES = 8
MOST_OTHER_COLUMNS = 8
EPOCHS_HINT = (
    "Figures of {held_out} come from a part of the training set that is not trained on: they choose the best epoch."
)

Table = tuple[list[str], list[list[str]]]
"""Heads and rows."""


def report(run: Run) -> str:
    """The whole file."""
    view = run.view
    made = environment()
    found, classes = charts_of(view), class_panel(view)
    of_points = [time_of(view.pi)] if view.pi else []
    drawn = [*found, *of_points, worked(view), precision_recall(run, unit_of(view))]
    charts = [chart for chart in drawn if not chart.is_empty]
    return made.get_template("report.html").render(
        title=f"{view.job} on {view.cluster}",
        view=view,
        name=run.name,
        tiles=summary_tiles(run),
        charts=[chart for chart in charts if chart.kind != "spans"],
        timeline=next((chart for chart in charts if chart.kind == "spans"), None),
        recognised=recognised(run),
        absent=[chart.title for chart in found if chart.is_empty],
        classes=classes if classes is not None and classes.rows else None,
        glossary=glossary(unit_of(view)),
        unit=unit_of(view),
        epochs_hint=EPOCHS_HINT.format(**terms(unit_of(view))),
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


def summary_tiles(run: Run) -> list[Tile]:
    """The figures of a run that has ended, to look at first."""
    view, result = run.view, run.result
    tiles = [Tile("Time", duration(view.elapsed_seconds), "from the first to the last moment of the job")]
    if view.pi is not None:
        samples, seconds = number_of(result, "samples"), view.elapsed_seconds
        speed = samples / seconds if samples is not None and seconds > 0 else None
        tiles += [
            Tile("Estimate of pi", figure(number_of(result, "estimate"), 7), "four times the share of hits"),
            Tile("Standard error", give_or_take(number_of(result, "standard_error")), "how far off by chance"),
            Tile("Samples", short(samples), f"of {short(view.pi.planned_samples)} planned"),
            Tile("Throughput", rate(speed), "samples a second, start included"),
        ]
    elif view.job == "recognise":
        tiles += recognised_tiles(run)
    else:
        leak = part_of(result, "dataset", "held_out", "leak")
        tiles += _tested(view)
        tiles += [Tile("The test set", "a leak", str(leak))] if leak else []
    if view.train is not None and view.train.stopped_early is not None:
        epoch = part_of(result, "stopped_early", "epoch") or view.train.epoch
        tiles.append(Tile("Stopped early", f"epoch {count(epoch)}", view.train.stopped_early))
    if view.train is not None:
        speed = number_of(result, "throughput", "windows_per_second")
        tiles += [
            Tile("Throughput", rate(speed), f"{unit_of(view)} a second while it trained"),
            Tile("Staleness", figure(number_of(result, "staleness", "mean"), 1), "updates of others in between, mean"),
        ]
    workers = len({role.task for node in view.nodes for role in node.roles if role.task.startswith("worker:")})
    return [*tiles, Tile("Workers", count(workers or part_of(result, "workers")), "processes that computed")]


def _tested(view: RunView) -> list[Tile]:
    """The figures of the test set that the task has."""
    found, unit, tiles = view.figures.get("test", {}), unit_of(view), []
    if view.task_type in NAMING or "accuracy" in found:
        share = percent(found.get("accuracy"), 2)
        tiles.append(Tile("Test accuracy", share, f"share of the test {unit} named correctly"))
    if view.task_type in NAMING or "f1_macro" in found:
        f1 = figure(found.get("f1_macro"))
        tiles.append(Tile("Macro F1", f1, "precision and recall in one, every class alike"))
    loss = Tile("Test loss", measure(found.get("loss")), "how wrong the answers are; lower is better")
    return [*tiles, loss, *other_tiles(found, f"of the test {unit}", MOST_OTHER_TILES)]


_SETTINGS = {
    "mode": "", "workers": "", "ps": "", "seed": "", "dataset": "dataset.name", "dataset.sha256": "",
    "dataset.train_windows": "", "dataset.test_windows": "", "dataset.held_out.by": "",
    "model.parameters": "", "samples": "planned_samples", "evaluated_run": "", "recognised_by": "", "data": "",
    "filters": "", "window_steps": "", "hop": "", "source_hz": "", "readings": "",
}  # fmt: skip
"""Keys of a result that are shown as settings, and where their values stand if not under the same key."""


def settings_of(run: Run) -> dict[str, str]:
    """Everything the run was set to, by the key that the inventory has for it."""
    result = run.result
    found = {key: part_of(result, *(path or key).split(".")) for key, path in _SETTINGS.items()}
    found |= dict(_flat(part_of(result, "settings") or {}))
    return {key: _text(value) for key, value in found.items() if value is not None}


def _flat(found: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in found.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _text(value: Any) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case int() if abs(value) >= 10_000:
            return f"{value:,}"
        case float():
            return f"{value:g}"
        case list():
            return ", ".join(_text(one) for one in value)
        case _:
            return str(value)


def wire_rows(run: Run) -> list[Tile]:
    """Bytes between workers and parameter servers; none where nothing was measured."""
    pull, push = (number_of(run.result, "wire", f"{way}_bytes_per_step") for way in ("pull", "push"))
    if pull is None or push is None:
        return []
    steps = number_of(run.result, "updates", "applied") or number_of(run.result, "updates", "scheduled") or 0.0
    codec = part_of(run.result, "settings", "codec", "name")
    rows = [
        Tile("pull", amount(pull), "a step: parameters, from the servers to a worker"),
        Tile("push", amount(push), "a step: a gradient, from a worker to the servers"),
        Tile("packets", count(number_of(run.result, "wire", "packets_per_step")), "a step, both ways"),
        Tile("all steps", amount((pull + push) * steps), f"pull and push of {count(steps)} updates"),
    ]
    return [*rows, *([Tile("codec", str(codec), "how the numbers are written on the wire")] if codec else [])]


def survived_rows(run: Run) -> list[Tile]:
    """What went wrong without ending the run."""
    result, view = run.result, run.view
    departures = sum(role.departures for node in view.nodes for role in node.roles)
    suspected = sum(span.state == "suspected" for span in view.spans)
    rows = [
        Tile("workers lost", count(departures), "times a worker left the cluster; its work was done by others"),
        Tile("suspicions", count(suspected), "times a worker was silent for longer than its work should take"),
    ]
    if view.train is not None:
        applied, planned, twice, lost = (
            count(number_of(result, "updates", key))
            for key in ("applied", "scheduled", "duplicates_dropped", "rolled_back")
        )
        rows += [
            Tile("updates applied", applied, f"of {planned}"),
            Tile("sent twice", twice, "dropped: each update counts once"),
            Tile("rolled back", lost, "lost with a server, and done again"),
            Tile("resumptions", count(number_of(result, "resumptions")), "times the job was resumed"),
        ]
    injected = part_of(result, "chaos", "injected") or {}
    return rows + [Tile(f"injected: {fault}", count(times), "by --chaos") for fault, times in injected.items()]


def busy_table(run: Run) -> Table | None:
    """What ran where and how busy it was; None for a run that did not measure it."""
    tasks = part_of(run.result, "busy", "tasks")
    if not isinstance(tasks, list) or not tasks:
        return None
    rows = [
        [
            _text(part_of(task, "task")), _text(part_of(task, "node")), _text(part_of(task, "device") or "processor"),
            count(number_of(task, "cores")), duration(number_of(task, "cpu_seconds")),
            percent(number_of(task, "cpu_share")), percent(number_of(task, "device_share")),
        ]
        for task in tasks if isinstance(task, dict)
    ]  # fmt: skip
    return ["role", "node", "computes on", "cores", "processor time", "of its cores", "of its device"], rows


_OF_THE_MACHINE = "of the coordinator's machine"
_ENVIRONMENT = {
    "pscluster": "version of this project", "tensorflow": "version of TensorFlow", "python": "version of Python",
    "numpy": "version of NumPy", "system": _OF_THE_MACHINE, "processor": _OF_THE_MACHINE, "cores": _OF_THE_MACHINE,
    "memory_bytes": _OF_THE_MACHINE,
}  # fmt: skip


def environment_rows(run: Run) -> list[Tile]:
    """What the run ran on, as far as it was written down."""
    found = {key: value for key in _ENVIRONMENT if (value := part_of(run.environment, key)) is not None}
    return [
        Tile(
            key.removesuffix("_bytes"),
            amount(float(value)) if key == "memory_bytes" else str(value),
            _ENVIRONMENT[key],
        )
        for key, value in found.items()
    ]


SPAN_STATES = ("working", "suspected", "away")


def worker_table(view: RunView) -> Table | None:
    """A row for each worker that there is in the inventory or was in the run; None where there are none."""
    unit, rows = unit_of(view), dict[str, list[str]]()
    for node in view.nodes:
        for role in node.roles:
            if role.task.startswith("worker:"):
                shares = _shares(view, role.task)
                speeds = [sample.workers[role.task] for sample in view.samples if role.task in sample.workers]
                rows[role.task] = [
                    role.task, node.name, count(role.windows), short(sum(speeds) / len(speeds) if speeds else None),
                    duration(role.step_seconds), *(percent(shares.get(state)) for state in SPAN_STATES),
                    f"{role.departures}\N{MULTIPLICATION SIGN}",
                ]  # fmt: skip
    heads = ["worker", "node", unit, f"{unit}/s", "a step", *SPAN_STATES, "left"]
    return (heads, [rows[task] for task in sorted(rows, key=place_of)]) if rows else None


def _shares(view: RunView, task: str) -> dict[str, float]:
    """Of the time since it first was there, by state; empty before."""
    seconds = dict.fromkeys(SPAN_STATES, 0.0)
    for span in view.spans:
        if span.task == task:
            end = view.elapsed_seconds if span.end_seconds is None else span.end_seconds
            seconds[span.state] = seconds.get(span.state, 0.0) + max(0.0, end - span.begin_seconds)
    total = sum(seconds.values())
    return {state: spent / total for state, spent in seconds.items()} if total else {}


def epoch_table(train: TrainView) -> Table:
    """The table of all epochs."""
    others = others_of(train)[:MOST_OTHER_COLUMNS]
    heads = [
        "epoch", "stage", "loss", "accuracy", "held-out loss", "held-out accuracy", "held-out F1",
        "held-out precision", "held-out recall",
        *(f"held-out {figure_word(name).word}" for name in others), "learning rate",
    ]  # fmt: skip
    rows = [
        [
            str(epoch.epoch), epoch.stage, measure(epoch.loss), percent(epoch.accuracy), measure(epoch.validation_loss),
            percent(epoch.validation_accuracy), figure(epoch.validation_f1_macro),
            figure(epoch.validation_precision_macro), figure(epoch.validation_recall_macro),
            *(measure(epoch.validation_others.get(name)) for name in others), f"{epoch.learning_rate:.2g}",
        ]
        for epoch in train.epochs
    ]  # fmt: skip
    kept = [place for place in range(len(heads)) if any(row[place] != NOTHING for row in rows)]
    return [heads[place] for place in kept], [[row[place] for place in kept] for row in rows]
