"""The command: recordings or a live stream in, labels out, as lines of CSV or JSON."""

import argparse
import csv
import io
import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from core.data.filters import inputs_of
from core.data.intake import FASTER, rate_of
from core.exported import Model, open_model
from core.exported.description import labels_of
from core.ground.errors import ClusterError, ExitCode, UsageError
from core.logs import one_line, say, say_json
from recognise.first_look import FirstReadings, looked_at, why_nothing
from recognise.flags import parser_of
from recognise.lines import Block
from recognise.plausibility import refuse_other_windows, signals_of, window_problem
from recognise.recogniser import Recogniser, filter_warning, settings_of
from recognise.recordings import STANDARD_INPUT, blocks_of, is_windows, windows_in
from recognise.stream import Settings, as_json
from recognise.stream.settings import LONGEST_GAP_SECONDS
from recognise.stream.smoothing import probabilities
from recognise.stream.stream import MOST_READINGS

FIELDS = ("source", "event", "at", "label", "confidence", "latency_samples", "detail")
"""The columns of the CSV."""
_DIGITS = 6


Writer = Callable[[dict[str, Any]], None]
"""A printer of one event, `source` beside `as_json`'s keys: `say_json`, or a row of CSV."""


class CsvWriter:
    """A writer of one row a line, after a row of names.

    The row of a change has the new label, and the old one as its detail.
    """

    def __init__(self) -> None:
        self._row(dict(zip(FIELDS, FIELDS, strict=True)))

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Print one event."""
        row = dict(event)
        if row["event"] == "changed":
            row |= {"label": row["to"], "detail": f"from {row['from'] or 'nothing'}"}
        elif row["event"] == "fault":
            row |= {"event": row["kind"]}
        elif row["event"] == "window":
            row |= {"at": row["row"], "detail": f"expected {row['expected']}"}
        self._row(row)

    def _row(self, row: Mapping[str, Any]) -> None:
        text = io.StringIO()
        values = [row.get(name) for name in FIELDS]
        cells = [round(value, _DIGITS) if isinstance(value, float) else value for value in values]
        csv.writer(text, lineterminator="").writerow(
            "" if cell is None else _safe(cell) for cell in cells
        )
        say(one_line(text.getvalue()))


def _safe(cell: object) -> object:
    """Return the cell so that no spreadsheet takes it for a formula."""
    if isinstance(cell, str) and cell.startswith(("=", "+", "@", "-")) and len(cell) > 1:
        return f"'{cell}"
    return cell


@dataclass
class Summary:
    """Counts of one recording."""

    source: str
    windows: int = 0
    right: int | None = None
    milliseconds: float = 0.0
    labels: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    changes: int = 0
    bad_lines: int = 0
    details: dict[str, str] = field(default_factory=dict)
    """The text of the first fault of each kind."""
    nothing: str = ""
    """The reason why there is no window at all."""

    def count(self, event: Mapping[str, Any]) -> None:
        """Add one event, as JSON has it."""
        match event["event"]:
            case "fault":
                self.faults[event["kind"]] += 1
                self.details.setdefault(event["kind"], event["detail"])
            case "changed":
                self.changes += 1
            case _:
                self.labels[event["label"] or "undecided"] += 1

    def remarks(self) -> Sequence[str]:
        """Return why windows have no label, for a person."""
        if self.nothing:
            return (self.nothing,)
        count = self.faults["implausible"]
        remark = (
            f"{count:,} of {count + self.windows:,} windows got no label:"
            f" {self.details.get('implausible', '')}"
        )
        if count:
            return (f"warning: {self.source}: {remark}",)
        return ()

    @property
    def worst(self) -> str:
        """The text of the first fault of the most frequent kind; empty without faults."""
        if self.faults:
            return self.details[self.faults.most_common(1)[0][0]]
        return ""

    def line(self) -> str:
        """Return the summary in one line."""
        total = sum(self.labels.values())
        shares = ", ".join(
            f"{label} {100 * count / total:.1f} %" for label, count in self.labels.most_common()
        )
        figures = [f"{self.windows:,} windows" + (f" ({shares})" if shares else "")]
        if self.right is not None and self.windows:
            figures.append(f"{self.right / self.windows:.4f} right")
        else:
            figures.append(f"{self.changes:,} changes")
        figures += [f"{count:,} {kind}" for kind, count in sorted(self.faults.items())]
        figures += [f"{self.bad_lines:,} bad lines"] if self.bad_lines else []
        figures += [f"{self.milliseconds / self.windows:.3f} ms a window"] if self.windows else []
        return f"{self.source}: {'; '.join(figures)}"


MOST_TOLD = 10
"""Bad lines of one recording that are shown; the summary counts them all."""
WINDOWS_AT_ONCE = 256
MOST_THREADS = 64


def main(arguments: Sequence[str] | None = None) -> int:
    """Label the recordings; returns the exit code: 2 if one of them was unusable."""
    parser = parser_of(
        Path(__file__).with_name("flags.json"),
        "recognise",
        "Label recordings or a live stream with an exported model.",
        longest_gap=LONGEST_GAP_SECONDS,
    )
    flags = parser.parse_args(arguments)
    try:
        return _run(flags)
    except ClusterError as problem:
        say(one_line(str(problem)), error=True)
        return int(problem.exit_code)
    except KeyboardInterrupt:
        return int(ExitCode.CANCELLED)
    except OSError as problem:  # of standard output: what is read has errors of its own
        # Python would try to write the rest once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(problem, BrokenPipeError):  # a reader that closed the pipe has enough
            say(
                f"the labels cannot be written ({problem.strerror}): write them to another place",
                error=True,
            )
        return int(ExitCode.FAILED)


def _run(flags: argparse.Namespace) -> int:
    if not 1 <= flags.threads <= MOST_THREADS:
        raise UsageError(
            f"--threads: expected 1 to {MOST_THREADS}, got {flags.threads}; correct it"
        )
    in_g = (flags.acceleration, flags.rotation) == ("g", "rad/s")
    if flags.format is not None and (not in_g or STANDARD_INPUT in flags.files):
        raise UsageError(
            "--format: the format says the units, and is of files: expected no --acceleration, no"
            " --rotation and no standard input; leave them out"
        )
    model = open_model(flags.model, threads=flags.threads)
    streams = [name for name in flags.files if flags.format or not is_windows(name)]
    settings = _settings(model, flags) if streams else None
    if streams and (warning := filter_warning(model.description)):
        say(f"warning: {one_line(warning)}", error=True)
    if flags.to == "json":
        write: Writer = say_json
    else:
        write = CsvWriter()
    code = ExitCode.DONE
    for name in flags.files:
        summary = Summary("standard input" if name == STANDARD_INPUT else name)
        try:
            if settings is None or name not in streams:
                _label_windows(model, name, write, summary)
            else:
                _label_readings(model, settings, name, flags.format, write, summary)
        except KeyboardInterrupt:
            say(one_line(summary.line()), error=True)
            raise
        except UsageError as problem:
            say(one_line(str(problem)), error=True)
            code = ExitCode.BAD_USAGE
            continue
        say(one_line(summary.line()), error=True)
        if summary.bad_lines or summary.windows <= summary.faults["implausible"]:
            code = ExitCode.BAD_USAGE
        for line in summary.remarks():
            say(one_line(line), error=True)
    return int(code)


def _settings(model: Model, flags: argparse.Namespace) -> Settings:
    votes, slash, of = flags.smooth.partition("/")
    if not (slash and votes.isdecimal() and of.isdecimal() and len(flags.smooth) <= 7):
        raise UsageError(
            f"--smooth: expected K/N such as 2/3, got {flags.smooth!r:.40}; correct it"
        )
    described_so = None
    if flags.format is not None:
        described_so = inputs_of(signals_of(model.description))
    return settings_of(
        model.description,
        given=described_so,
        hop=flags.hop,
        votes=int(votes),
        of=int(of),
        least_confidence=flags.least_confidence,
        acceleration_unit=flags.acceleration,
        rotation_unit=flags.rotation,
        source_hz=flags.source_hz,
        longest_gap_seconds=flags.longest_gap,
    )


def _label_readings(
    model: Model,
    settings: Settings,
    name: str,
    format_name: str | None,
    write: Writer,
    summary: Summary,
) -> None:
    hertz = None
    # The first readings of a pipe are gone once they were looked at.
    if name != STANDARD_INPUT and (format_name is not None or Path(name).is_file()):
        hertz = looked_at(name, settings, format_name)
    recogniser = Recogniser(model, settings)
    first = FirstReadings()
    is_told = False
    for block in blocks_of(name, format_name, settings.signals):
        _tell(block, summary)
        first.take(block)
        if not is_told and first.count > 2:
            is_told = True
            _tell_rate(hertz or rate_of(first.rows[:, 0]), settings, summary.source)
        for start in range(0, len(block.readings), MOST_READINGS):
            rows = block.readings[start : start + MOST_READINGS]
            for event in recogniser.push_values(rows[:, 0], rows[:, 1:]):
                record: dict[str, Any] = {"source": name, **as_json(event)}
                summary.count(record)
                write(record)
            summary.windows = recogniser.windows
            summary.milliseconds = recogniser.model_seconds * 1000
    if not summary.windows:
        summary.nothing = why_nothing(summary.source, first, settings, summary.worst)


def _tell(block: Block, summary: Summary) -> None:
    if block.note:
        say(one_line(f"{summary.source}: {block.note}"), error=True)
    for number, reason in block.problems:
        summary.bad_lines += 1
        if summary.bad_lines <= MOST_TOLD:
            say(one_line(f"{summary.source}:{number}: {reason}; the line is left out"), error=True)


def _tell_rate(hertz: float | None, settings: Settings, source: str) -> None:
    if hertz is not None and settings.source_hz is None and hertz > FASTER * settings.sampling_hz:
        say(
            f"warning: {one_line(source)}: {hertz:.0f} readings a second, the model has"
            f" {settings.sampling_hz:g}; give --source-hz {hertz:.0f}, which filters what the"
            " model's rate cannot hold",
            error=True,
        )


def _label_windows(model: Model, name: str, write: Writer, summary: Summary) -> None:
    recordings = windows_in(name)
    labels = labels_of(model.description)
    shape = model.description.input.shape
    if recordings.windows.shape[1:] != shape:
        raise UsageError(
            f"{name}: expected windows of {shape}, as the model has, got"
            f" {recordings.windows.shape[1:]}"
        )
    signals = signals_of(model.description)
    refuse_other_windows(name, recordings.signals, signals)
    expected = [recordings.labels[number] for number in recordings.classes]
    if set(recordings.labels) <= set(labels):
        summary.right = 0
    for start in range(0, len(recordings.windows), WINDOWS_AT_ONCE):
        began = perf_counter()
        logits = model.logits(recordings.windows[start : start + WINDOWS_AT_ONCE])
        summary.milliseconds += (perf_counter() - began) * 1000
        for row, answer in enumerate(logits, start=start):
            problem = window_problem(recordings.windows[row], signals)
            line: dict[str, Any] = {"source": name}
            if problem is not None:
                detail = f"{problem} (no label)"
                line |= {"event": "fault", "kind": "implausible", "row": row, "detail": detail}
            else:
                chances = probabilities(answer)
                label = labels[int(np.argmax(chances))] if chances.any() else None
                summary.windows += 1
                if summary.right is not None:
                    summary.right += label == expected[row]
                line |= {"event": "window", "row": row, "label": label}
                line |= {"confidence": float(chances.max()), "expected": expected[row]}
            summary.count(line)
            write(line)
