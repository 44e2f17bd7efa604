"""How far a sweep's runs are, and what came out. Pure.

Lines that a run prints, the time that is left, and results as rows: mean and spread over the seeds
of each setting.
"""

import csv
import io
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, TypeAdapter

from cluster.pages.files import OVER, RunRecord, SweepGroup, SweepRecord
from cluster.sweeps.sweep_file import Search
from core.ground.files import parsed_json
from core.status.view import SweepCellView, SweepView

WORD = "pscluster_run"
"""Begins each line that a run says to its sweep."""
LONGEST_LINE = 4096
LARGEST = 10**12
LONGEST_ERROR = 2000
MOST_FIGURES = 100
LONGEST_FIGURE_NAME = 100
LARGEST_FIGURE = 1e100


def figures_of_node(figures: Any) -> dict[str, float | None]:
    """Return a node's figures of a run: printable names, numbers that JSON has a word for.

    Others are left out: the sweep's files and pages could not hold them.
    """
    if not isinstance(figures, dict):
        return {}
    plain = (
        (name, value)
        for name, value in figures.items()
        if str(name).isprintable()
        and len(name) <= LONGEST_FIGURE_NAME
        and (value is None or (type(value) in (int, float) and abs(value) <= LARGEST_FIGURE))
    )
    return dict(islice(plain, MOST_FIGURES))


def known_figures(figures: Any) -> dict[str, float]:
    """Return a node's figures that are known."""
    figures_by_name = figures_of_node(figures).items()
    return {name: value for name, value in figures_by_name if value is not None}


_Count = Annotated[int, Field(strict=True, ge=0, le=LARGEST)]


@dataclass(frozen=True)
class Advance:
    """Updates that are done, of how many, in this stage of a run.

    `spread` is the deviation of the seconds between two of them, over their median.
    """

    stage: Annotated[str, BeforeValidator(lambda stage: str(stage)[:80])]
    done: _Count
    total: _Count
    spread: Annotated[float, Field(ge=0.0, le=1e6)] = 0.0


@dataclass(frozen=True)
class Epoch:
    """A finished epoch and the figures of its validation; empty where nothing was held out."""

    epoch: _Count
    validation: Annotated[Mapping[str, float], BeforeValidator(known_figures)]


Message = Advance | Epoch
"""What a run says to its sweep."""
_ADVANCE = TypeAdapter(Advance)
_EPOCH = TypeAdapter(Epoch)


class MemberOutput:
    """Cuts what a run prints into lines: those for the sweep as messages, others as they are."""

    def __init__(self) -> None:
        self._rest = b""
        self.last = ""
        """The last line of other words: what a failed process said."""

    def add(self, piece: bytes) -> list[Message]:
        """The messages in what came."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        self._rest = self._rest[-LONGEST_LINE:]
        messages = []
        for line in lines:
            message = message_of(line[:LONGEST_LINE])
            if message is not None:
                messages.append(message)
            elif text := line[:LONGEST_LINE].decode(errors="replace").strip():
                self.last = text
        return messages

    def close(self) -> None:
        """The process has ended: what is left is a line too."""
        if text := self._rest.decode(errors="replace").strip():
            self.last = text
        self._rest = b""


def message_of(line: bytes) -> Message | None:
    """The message in one line; None for any other text."""
    if WORD.encode() not in line:
        return None
    try:
        content = parsed_json(line)[WORD]
        return (_EPOCH if "epoch" in content else _ADVANCE).validate_python(content)
    except (ValueError, KeyError, TypeError):
        return None


def seconds_left(
    runs: Sequence[RunRecord],
    nodes: int,
    elapsed: Mapping[str, tuple[float, Advance | None]],
    to_come: int = 0,
) -> float | None:
    """Return the time until all runs are over, at the speed so far; None while nothing is known.

    `elapsed` has the seconds of each running run since it got its node, and how far it is.
    `to_come` runs are not drawn yet. A run that waits takes the mean of the finished ones, or of
    what the running ones will have taken.
    """
    whole = {
        name: seconds * progress.total / progress.done
        for name, (seconds, progress) in elapsed.items()
        if progress is not None and progress.done and progress.total
    }
    finished = [run.seconds for run in runs if run.state == "finished"]
    durations = finished or list(whole.values())
    if not durations:
        all_over = not to_come and all(run.state in OVER for run in runs)
        if all_over:
            return 0.0
        return None
    usual = statistics.fmean(durations)
    waiting = sum(run.state == "waiting" for run in runs) + to_come
    remaining_seconds = [
        max(0.0, whole.get(name, usual) - seconds) for name, (seconds, _) in elapsed.items()
    ]
    work = waiting * usual + sum(remaining_seconds)
    return max([work / max(1, nodes), *remaining_seconds])


VALIDATION = "validation_"
"""Begins the names of the figures on the validation, which may choose; the others are of the test
set."""
TABLE_FIGURES = ("accuracy", "f1_macro", "loss", "validation_accuracy")
"""Figures at the terminal; the CSV file has every one."""


SECONDS = "seconds"


def values_of(group: SweepGroup) -> dict[str, list[float]]:
    """Every figure of the finished runs of a setting, and their seconds."""
    values: dict[str, list[float]] = {}
    for run in group.runs:
        if run.state != "finished" or run.final is None:
            continue
        figures = {**run.final, SECONDS: run.seconds}
        figures |= {f"{VALIDATION}{name}": value for name, value in (run.selected or {}).items()}
        for name, value in figures.items():
            if value is not None:
                values.setdefault(name, []).append(value)
    return values


def spread(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the mean and the deviation of a sample (n - 1), each None where there is none.

    The order of the values changes no bit.
    """
    return (
        statistics.fmean(values) if values else None,
        statistics.stdev(values) if len(values) > 1 else None,
    )


def spread_text(values: Sequence[float], digits: int = 4) -> str:
    """`0.9123 ± 0.0021`; a dash without values."""
    mean, deviation = spread(values)
    numbers = [f"{number:.{digits}f}" for number in (mean, deviation) if number is not None]
    return " ± ".join(numbers) or "-"


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """Return each key's last words that distinguish it: `hidden` for `...model.hidden`."""
    names = {}
    for key in keys:
        segments = key.split(".")
        ends = [".".join(segments[-count:]) for count in range(1, len(segments) + 1)]
        names[key] = next(
            end
            for end in ends
            if sum(other == end or other.endswith(f".{end}") for other in keys) == 1 or end == key
        )
    return names


def in_words(settings: Mapping[str, Any]) -> str:
    """`hidden 8, batch_size 50`; empty without any."""
    names = short_names(list(settings))
    return ", ".join(f"{names[key]} {json.dumps(value)}" for key, value in settings.items())


def csv_of(record: SweepRecord) -> str:
    """Return `table.csv`: a line a setting, of each figure the mean and the deviation.

    A cell is empty where there is none.
    """
    rows = [(group, values_of(group)) for group in record.groups]
    keys = _keys(record)
    figures = dict.fromkeys(name for _, values in rows for name in values)
    figures.pop(SECONDS, None)
    names = [*figures, SECONDS]
    named = [f"{name}_{part}" for name in names for part in ("mean", "deviation")]
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow([*keys, "runs", "finished", *map(_cell, named)])
    for group, values in rows:
        settings = [_cell(group.settings.get(key)) for key in keys]
        numbers = [_cell(number) for name in names for number in spread(values.get(name, ()))]
        finished = len(values.get(SECONDS, ()))
        writer.writerow([*settings, len(group.runs), finished, *numbers])
    return lines.getvalue()


def _keys(record: SweepRecord) -> list[str]:
    return list(dict.fromkeys(key for group in record.groups for key in group.settings))


def text_table(record: SweepRecord) -> list[list[str]]:
    """Header and rows for a terminal."""
    rows = [(group, values_of(group)) for group in record.groups]
    keys = _keys(record)
    figures = [name for name in TABLE_FIGURES if any(name in values for _, values in rows)]
    table = [[*short_names(keys).values(), "runs", *figures, SECONDS]]
    for group, values in rows:
        settings = [_cell(group.settings.get(key)) for key in keys]
        finished = len(values.get(SECONDS, ()))
        count = str(finished)
        if finished < len(group.runs):
            count = f"{finished} of {len(group.runs)}"
        spreads = [spread_text(values.get(name, ())) for name in figures]
        table.append([*settings, count, *spreads, spread_text(values.get(SECONDS, ()), 1)])
    return table


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        return json.dumps(value)
    # A spreadsheet takes such a text for a formula.
    if value[:1] in ("=", "+", "-", "@"):
        return f"'{value}"
    return value


MOST_CELLS = 1000


def best_of(record: SweepRecord, search: Search) -> RunRecord | None:
    """Return the run with the best value of the search's metric on the validation.

    None before one is finished.
    """
    values = {
        run.id: value
        for run in record.runs
        if (value := (run.selected or {}).get(search.metric)) is not None
    }
    best = (max if search.maximizes else min)(values, key=lambda run: values[run], default=None)
    return next((run for run in record.runs if run.id == best), None)


def picture_of(
    record: SweepRecord, shares: Mapping[str, float], remaining: float | None
) -> SweepView:
    """The sweep as page and metrics have it.

    `shares`: how much is done of each running run, by id.
    """
    cells = tuple(
        SweepCellView(
            run.id,
            in_words(run.settings),
            run.seed,
            run.state,
            run.node,
            1.0 if run.state in OVER else shares.get(run.id, 0.0),
            (run.final or {}).get("accuracy"),
        )
        for run in record.runs[:MOST_CELLS]
    )
    counts = {str(state): count for state, count in record.counts().items()}
    return SweepView(record.name, record.placement, counts, remaining, cells)
