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
from cluster.pages.run_files import StoredRun, number_of, object_of, part_of
from cluster.pages.run_tables import (
    busy_table,
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
    give_or_take,
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
    made = environment()
    found = charts_of(view)
    classes = class_panel(view)
    if view.pi:
        of_points = [time_of(view.pi)]
    else:
        of_points = []
    drawn = [*found, *of_points, worked(view), precision_recall(run, unit_of(view))]
    charts = [chart for chart in drawn if not chart.is_empty]
    return made.get_template("report.html").render(
        title=f"{view.job} on {view.cluster}",
        view=view,
        name=run.name,
        tiles=summary_tiles(run),
        charts=[chart for chart in charts if chart.kind != "spans"],
        timeline=next((chart for chart in charts if chart.kind == "spans"), None),
        absent=[chart.title for chart in found if chart.is_empty],
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
            Tile(
                "Estimate of pi",
                figure(number_of(result, "estimate"), 7),
                "four times the share of hits",
            ),
            Tile(
                "Standard error",
                give_or_take(number_of(result, "standard_error")),
                "how far off by chance",
            ),
            Tile("Samples", short(samples), f"of {short(view.pi.planned_samples)} planned"),
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
        speed = number_of(result, "throughput", "windows_per_second")
        tiles += [
            Tile("Throughput", rate(speed), f"{unit_of(view)} a second while it trained"),
            Tile(
                "Staleness",
                figure(number_of(result, "staleness", "mean"), 1),
                "updates of others in between, mean",
            ),
        ]
    workers = len(
        {role.task for node in view.nodes for role in node.roles if role.task.startswith("worker:")}
    )
    return [
        *tiles,
        Tile("Workers", count(workers or part_of(result, "workers")), "processes that computed"),
    ]


def _tested(view: RunView) -> list[Tile]:
    """The figures of the test set that the task has."""
    found = view.figures.get("test", {})
    unit = unit_of(view)
    tiles = []
    if view.task_type in NAMING or "accuracy" in found:
        share = percent(found.get("accuracy"), 2)
        tiles.append(Tile("Test accuracy", share, f"share of the test {unit} named correctly"))
    if view.task_type in NAMING or "f1_macro" in found:
        f1 = figure(found.get("f1_macro"))
        tiles.append(Tile("Macro F1", f1, "precision and recall in one, every class alike"))
    loss = Tile(
        "Test loss", measure(found.get("loss")), "how wrong the answers are; lower is better"
    )
    return [*tiles, loss, *other_tiles(found, f"of the test {unit}", MOST_OTHER_TILES)]


_SETTINGS = {
    "mode": "",
    "workers": "",
    "ps": "",
    "seed": "",
    "dataset": "dataset.name",
    "dataset.sha256": "",
    "dataset.train_windows": "",
    "dataset.test_windows": "",
    "dataset.held_out.by": "",
    "model.parameters": "",
    "samples": "planned_samples",
    "evaluated_run": "",
}
"""Keys of a result that are shown as settings, and where their values stand if not under the same
key."""


def settings_of(run: StoredRun) -> dict[str, str]:
    """Everything the run was set to, by the key that the inventory has for it."""
    result = run.result
    found = {key: part_of(result, *(path or key).split(".")) for key, path in _SETTINGS.items()}
    found |= dict(_flat(object_of(result, "settings")))
    return {key: value_text(value) for key, value in found.items() if value is not None}


def _flat(found: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in found.items():
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
        Tile("pull", amount(pull), "a step: parameters, from the servers to a worker"),
        Tile("push", amount(push), "a step: a gradient, from a worker to the servers"),
        Tile(
            "packets", count(number_of(run.result, "wire", "packets_per_step")), "a step, both ways"
        ),
        Tile(
            "all steps", amount((pull + push) * steps), f"pull and push of {count(steps)} updates"
        ),
    ]
    return [
        *rows,
        *([Tile("codec", str(codec), "how the numbers are written on the wire")] if codec else []),
    ]


def survived_rows(run: StoredRun) -> list[Tile]:
    """What went wrong without ending the run."""
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
        # Those of the state: there is no result yet where another coordinator was killed.
        train = view.train
        planned = number_of(result, "updates", "scheduled")
        words = "in the whole history" if planned is None else f"of {count(planned)}"
        rows += [
            Tile("updates applied", count(train.updates_applied), words),
            Tile("sent twice", count(train.duplicates_dropped), "dropped: each update counts once"),
            Tile("rolled back", count(train.rolled_back), "lost with a server, and done again"),
            Tile("resumptions", count(train.resumptions), "times the job was resumed"),
        ]
    injected = object_of(result, "chaos", "injected")
    return rows + [
        Tile(f"injected: {fault}", count(times), "by --chaos") for fault, times in injected.items()
    ]


_OF_THE_MACHINE = "of the coordinator's machine"
_ENVIRONMENT = {
    "pscluster": "version of this project",
    "tensorflow": "version of TensorFlow",
    "python": "version of Python",
    "numpy": "version of NumPy",
    "system": _OF_THE_MACHINE,
    "processor": _OF_THE_MACHINE,
    "cores": _OF_THE_MACHINE,
    "memory_bytes": _OF_THE_MACHINE,
}


def environment_rows(run: StoredRun) -> list[Tile]:
    """What the run ran on, as far as it was written down."""
    found = {
        key: value for key in _ENVIRONMENT if (value := part_of(run.environment, key)) is not None
    }
    return [
        Tile(
            key.removesuffix("_bytes"),
            amount(number_of(run.environment, key)) if key == "memory_bytes" else str(value),
            _ENVIRONMENT[key],
        )
        for key, value in found.items()
    ]
