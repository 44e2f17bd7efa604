"""The tables of a report: what the run was set to, moved, survived, and ran on. Each row is a name, a value, a word."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cluster.pages.numbers import NOTHING, amount, count, duration, figure, give_or_take, percent, rate, short
from cluster.pages.panels import Tile
from cluster.pages.run_charts import place_of
from cluster.pages.run_files import Run, number_of, part_of
from cluster.status.view import EpochView, RunView


@dataclass(frozen=True)
class Row:
    """A line of a table."""

    name: str
    value: str
    hint: str = ""


@dataclass(frozen=True)
class WorkerRow:
    """What one worker did in the run. Shares are of the time since it first was there."""

    task: str
    node: str
    windows: int
    windows_per_second: float | None
    step_seconds: float | None
    departures: int
    working: float | None
    suspected: float | None
    away: float | None


def summary_tiles(run: Run) -> list[Tile]:
    """The figures of a run that has ended, to look at first."""
    view, result = run.view, run.result
    workers = len({role.task for node in view.nodes for role in node.roles if role.task.startswith("worker:")})
    shown = workers or part_of(result, "workers")
    tiles = [Tile("Time", duration(view.elapsed_seconds), "from the first to the last moment of the job")]
    if view.pi is not None:
        samples = number_of(result, "samples")
        tiles += [
            Tile("Estimate of pi", figure(number_of(result, "estimate"), 7), "four times the share of hits"),
            Tile("Standard error", give_or_take(number_of(result, "standard_error")), "how far off by chance"),
            Tile("Samples", short(samples), f"of {short(view.pi.planned_samples)} planned"),
            Tile("Throughput", rate(_per(samples, view.elapsed_seconds)), "samples a second, start included"),
        ]
    else:
        tested = view.figures.get("test", {})
        tiles += [
            Tile("Test accuracy", percent(tested.get("accuracy"), 2), "share of the test windows named correctly"),
            Tile("Macro F1", figure(tested.get("f1_macro")), "precision and recall in one, every class alike"),
            Tile("Test loss", figure(tested.get("loss")), "how wrong the answers are; 0 is best"),
        ]
    if view.train is not None:
        speed = number_of(result, "throughput", "windows_per_second")
        tiles += [
            Tile("Throughput", rate(speed), "windows a second while it trained"),
            Tile("Staleness", figure(number_of(result, "staleness", "mean"), 1), "updates of others in between, mean"),
        ]
    return [*tiles, Tile("Workers", count(shown), "processes that computed")]


def _per(value: float | None, seconds: float) -> float | None:
    return value / seconds if value is not None and seconds > 0 else None


_SETTINGS = {
    "mode": "", "workers": "", "ps": "", "seed": "", "dataset": "dataset.name", "dataset.sha256": "",
    "dataset.train_windows": "", "dataset.test_windows": "", "model.parameters": "", "samples": "planned_samples",
    "evaluated_run": "",
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
        case int():
            return f"{value:,}" if abs(value) >= 10_000 else str(value)
        case float():
            return f"{value:g}"
        case list():
            return ", ".join(_text(one) for one in value)
        case _:
            return str(value)


def wire_rows(run: Run) -> list[Row]:
    """Bytes between workers and parameter servers; none where nothing was measured."""
    pull, push = (number_of(run.result, "wire", f"{way}_bytes_per_step") for way in ("pull", "push"))
    if pull is None or push is None:
        return []
    steps = number_of(run.result, "updates", "applied") or number_of(run.result, "updates", "scheduled") or 0.0
    codec = part_of(run.result, "settings", "codec", "name")
    rows = [
        Row("pull", amount(pull), "a step: parameters, from the servers to a worker"),
        Row("push", amount(push), "a step: a gradient, from a worker to the servers"),
        Row("packets", count(number_of(run.result, "wire", "packets_per_step")), "a step, both ways"),
        Row("all steps", amount((pull + push) * steps), f"pull and push of {count(steps)} updates"),
    ]
    return [*rows, *([Row("codec", str(codec), "how the numbers are written on the wire")] if codec else [])]


def survived_rows(run: Run) -> list[Row]:
    """What went wrong without ending the run."""
    result, view = run.result, run.view
    departures = sum(role.departures for node in view.nodes for role in node.roles)
    suspected = sum(span.state == "suspected" for span in view.spans)
    rows = [
        Row("workers lost", count(departures), "times a worker left the cluster; its work was done by others"),
        Row("suspicions", count(suspected), "times a worker was silent for longer than its work should take"),
    ]
    if view.train is not None:
        updates = part_of(result, "updates") or {}
        rows += [
            Row(
                "updates applied", count(number_of(updates, "applied")), f"of {count(number_of(updates, 'scheduled'))}"
            ),
            Row("sent twice", count(number_of(updates, "duplicates_dropped")), "dropped: each update counts once"),
            Row("rolled back", count(number_of(updates, "rolled_back")), "lost with a server, and done again"),
            Row("resumptions", count(number_of(result, "resumptions")), "times the job was resumed"),
        ]
    injected = part_of(result, "chaos", "injected") or {}
    return rows + [
        Row(f"injected: {fault}", count(times), "asked for with --chaos") for fault, times in injected.items()
    ]


_VERSIONS = {
    "pscluster": "version of this project", "tensorflow": "version of TensorFlow", "python": "version of Python",
    "numpy": "version of NumPy",
}  # fmt: skip


def environment_rows(run: Run) -> list[Row]:
    """What the run ran on, as far as it was written down."""
    found, rows = run.environment, list[Row]()
    for key in ("pscluster", "tensorflow", "python", "numpy", "system", "processor", "cores", "memory_bytes"):
        value = part_of(found, key)
        if value is not None:
            shown = amount(float(value)) if key == "memory_bytes" else str(value)
            rows.append(Row(key.removesuffix("_bytes"), shown, _VERSIONS.get(key, "of the coordinator's machine")))
    return rows


def worker_rows(view: RunView) -> list[WorkerRow]:
    """A row for each worker that there is in the inventory or was in the run."""
    rows = []
    for node in view.nodes:
        for role in node.roles:
            if role.task.startswith("worker:"):
                shares = _shares(view, role.task)
                speeds = [sample.workers[role.task] for sample in view.samples if role.task in sample.workers]
                mean = sum(speeds) / len(speeds) if speeds else None
                rows.append(
                    WorkerRow(role.task, node.name, role.windows, mean, role.step_seconds, role.departures, *shares)
                )
    return sorted(rows, key=lambda row: place_of(row.task))


def _shares(view: RunView, task: str) -> tuple[float | None, float | None, float | None]:
    spans = [span for span in view.spans if span.task == task]
    seconds = dict.fromkeys(("working", "suspected", "away"), 0.0)
    for span in spans:
        end = view.elapsed_seconds if span.end_seconds is None else span.end_seconds
        seconds[span.state] = seconds.get(span.state, 0.0) + max(0.0, end - span.begin_seconds)
    total = sum(seconds.values())
    if not total:
        return None, None, None
    return seconds["working"] / total, seconds["suspected"] / total, seconds["away"] / total


def epoch_table(epochs: tuple[EpochView, ...]) -> tuple[list[str], list[list[str]]]:
    """Heads and rows of the table of all epochs."""
    heads = ["epoch", "stage", "loss", "accuracy", "held-out loss", "held-out accuracy", "held-out F1", "learning rate"]
    rows = [
        [
            str(epoch.epoch), epoch.stage, figure(epoch.loss), percent(epoch.accuracy), figure(epoch.validation_loss),
            percent(epoch.validation_accuracy), figure(epoch.validation_f1_macro), f"{epoch.learning_rate:.2g}",
        ]
        for epoch in epochs
    ]  # fmt: skip
    kept = [place for place in range(len(heads)) if any(row[place] != NOTHING for row in rows)]
    return [heads[place] for place in kept], [[row[place] for place in kept] for row in rows]
