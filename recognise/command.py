"""The command: recordings or a live stream in, labels out."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from core.data.filters import inputs_of
from core.data.intake import FASTER, rate_of
from core.exported import Model, open_model
from core.exported.description import labels_of
from core.ground.errors import ClusterError, ExitCode, UsageError
from core.logs.terminal import one_line, say, say_json
from recognise.first_look import FirstReadings, looked_at, why_nothing
from recognise.fitting import refuse_other_windows
from recognise.flags import parser_of
from recognise.lines import Block
from recognise.output import CsvWriter, Summary, Writer
from recognise.plausibility import window_problem
from recognise.recogniser import Recogniser, filter_warning, settings_of
from recognise.recordings import STANDARD_INPUT, blocks_of, is_windows, windows_in
from recognise.signals import signals_of
from recognise.stream import Settings, as_json
from recognise.stream.settings import LONGEST_GAP_SECONDS
from recognise.stream.smoothing import probabilities
from recognise.stream.stream import MOST_READINGS

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
    given = parser.parse_args(arguments)
    try:
        return _run(given)
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


def _run(given: argparse.Namespace) -> int:
    if not 1 <= given.threads <= MOST_THREADS:
        raise UsageError(
            f"--threads: expected 1 to {MOST_THREADS}, got {given.threads}; correct it"
        )
    in_g = (given.acceleration, given.rotation) == ("g", "rad/s")
    if given.format is not None and (not in_g or STANDARD_INPUT in given.files):
        raise UsageError(
            "--format: the format says the units, and is of files: expected no --acceleration, no"
            " --rotation and no standard input; leave them out"
        )
    model = open_model(given.model, threads=given.threads)
    streams = [name for name in given.files if given.format or not is_windows(name)]
    settings = _settings(model, given) if streams else None
    if streams and (warning := filter_warning(model.description)):
        say(f"warning: {one_line(warning)}", error=True)
    if given.to == "json":
        write: Writer = say_json
    else:
        write = CsvWriter()
    code = ExitCode.DONE
    for name in given.files:
        summary = Summary("standard input" if name == STANDARD_INPUT else name)
        try:
            if settings is None or name not in streams:
                _label_windows(model, name, write, summary)
            else:
                _label_readings(model, settings, name, given.format, write, summary)
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


def _settings(model: Model, given: argparse.Namespace) -> Settings:
    votes, slash, of = given.smooth.partition("/")
    if not (slash and votes.isdecimal() and of.isdecimal() and len(given.smooth) <= 7):
        raise UsageError(
            f"--smooth: expected K/N such as 2/3, got {given.smooth!r:.40}; correct it"
        )
    described_so = None
    if given.format is not None:
        described_so = inputs_of(signals_of(model.description))
    return settings_of(
        model.description,
        given=described_so,
        hop=given.hop,
        votes=int(votes),
        of=int(of),
        least_confidence=given.least_confidence,
        acceleration_unit=given.acceleration,
        rotation_unit=given.rotation,
        source_hz=given.source_hz,
        longest_gap_seconds=given.longest_gap,
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
                found: dict[str, Any] = {"source": name, **as_json(event)}
                summary.count(found)
                write(found)
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
    found = windows_in(name)
    labels = labels_of(model.description)
    shape = model.description.input.shape
    if found.windows.shape[1:] != shape:
        raise UsageError(
            f"{name}: expected windows of {shape}, as the model has, got {found.windows.shape[1:]}"
        )
    signals = signals_of(model.description)
    refuse_other_windows(name, found.signals, signals)
    expected = [found.labels[number] for number in found.classes]
    if set(found.labels) <= set(labels):
        summary.right = 0
    for start in range(0, len(found.windows), WINDOWS_AT_ONCE):
        began = perf_counter()
        logits = model.logits(found.windows[start : start + WINDOWS_AT_ONCE])
        summary.milliseconds += (perf_counter() - began) * 1000
        for row, answer in enumerate(logits, start=start):
            problem = window_problem(found.windows[row], signals)
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
