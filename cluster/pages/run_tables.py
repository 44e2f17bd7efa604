"""The tables of a report: who was busy, what each worker did, the epochs."""

from collections.abc import Callable, Mapping
from typing import Any

from cluster.pages.run_charts import (
    others_of,
    place_of,
    unit_of,
)
from cluster.pages.run_files import StoredRun, number_of, part_of
from cluster.pages.words import (
    NOTHING,
    count,
    duration,
    figure,
    figure_word,
    label,
    measure,
    percent,
    short,
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
            return ", ".join(value_text(one) for one in value)
        case _:
            return str(value)


Cell = Callable[[Mapping[str, Any]], str]


def _table_of(entries: Any, columns: Mapping[str, Cell]) -> Table | None:
    """Return a row for each object of a list in a result, by its columns; None without any."""
    if not isinstance(entries, list) or not entries:
        return None
    rows = [
        [cell(entry) for cell in columns.values()] for entry in entries if isinstance(entry, dict)
    ]
    return list(columns), rows


def busy_table(run: StoredRun) -> Table | None:
    """What ran where and how busy it was; None for a run that did not measure it."""
    return _table_of(
        part_of(run.result, "busy", "tasks"),
        {
            "role": lambda task: value_text(part_of(task, "task")),
            "node": lambda task: value_text(part_of(task, "node")),
            "computes on": lambda task: value_text(part_of(task, "device") or "processor"),
            "cores": lambda task: count(number_of(task, "cores")),
            "processor time": lambda task: duration(number_of(task, "cpu_seconds")),
            "of its cores": lambda task: percent(number_of(task, "cpu_share")),
            "of its device": lambda task: percent(number_of(task, "device_share")),
        },
    )


def group_table(run: StoredRun) -> Table | None:
    """Return a row for each person of the test, worst first; None without people."""
    by = value_text(part_of(run.result, "dataset", "held_out", "by") or "person")
    return _table_of(
        part_of(run.result, "by_group"),
        {
            by: lambda group: value_text(part_of(group, "group")),
            unit_of(run.view): lambda group: count(number_of(group, "examples")),
            "accuracy": lambda group: percent(number_of(group, "accuracy")),
            "F1": lambda group: percent(number_of(group, "f1_macro")),
            "loss": lambda group: figure(number_of(group, "loss")),
        },
    )


def wrong_table(run: StoredRun) -> Table | None:
    """Return a row for each stretch of a test that was taken for another class; None without."""
    by = value_text(part_of(run.result, "dataset", "held_out", "by") or "person")
    table = _table_of(
        part_of(run.result, "wrong"),
        {
            by: lambda stretch: value_text(part_of(stretch, "group")),
            unit_of(run.view): _stretch,
            "what it is": lambda stretch: label(value_text(part_of(stretch, "true"))),
            "taken for": lambda stretch: label(value_text(part_of(stretch, "predicted"))),
        },
    )
    return table and (table[0], table[1][:MOST_WRONG])


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
    others = others_of(train)[:MOST_OTHER_COLUMNS]
    heads = [
        "epoch",
        "stage",
        "loss",
        "accuracy",
        "held-out loss",
        "held-out accuracy",
        "held-out F1",
        "held-out precision",
        "held-out recall",
        *(f"held-out {figure_word(name).word}" for name in others),
        "learning rate",
    ]
    rows = [
        [
            str(epoch.epoch),
            epoch.stage,
            measure(epoch.loss),
            percent(epoch.accuracy),
            measure(epoch.validation_loss),
            percent(epoch.validation_accuracy),
            figure(epoch.validation_f1_macro),
            figure(epoch.validation_precision_macro),
            figure(epoch.validation_recall_macro),
            *(measure(epoch.validation_others.get(name)) for name in others),
            f"{epoch.learning_rate:.2g}",
        ]
        for epoch in train.epochs
    ]
    kept = [place for place in range(len(heads)) if any(row[place] != NOTHING for row in rows)]
    return [heads[place] for place in kept], [[row[place] for place in kept] for row in rows]
