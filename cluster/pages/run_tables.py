"""The tables of a report: who was busy, what each worker did, the epochs."""

from collections.abc import Mapping
from typing import Any

from cluster.pages.run_charts import (
    others_of,
    place_of,
    unit_of,
)
from cluster.pages.run_files import ROWS, Column, StoredRun, number_of, part_of
from cluster.pages.words import (
    NOTHING,
    count,
    duration,
    figure_word,
    label,
    percent,
    short,
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
