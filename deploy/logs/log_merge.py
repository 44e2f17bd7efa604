"""Lines of several logs merged by time: each dated, those of one run selected, then rendered.

Pure.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from core.ground.files import parsed_json
from core.logs import as_ascii, one_line, visible
from core.logs.lines import LogLine, read_line, whole_milliseconds

HOLD_SECONDS = 0.5
"""A new line waits this long for older ones that arrive later."""

LOOK_BACK_LINES = 500
"""Lines read before those asked for, to find the beginning of their message: a log may end in a
traceback."""


@dataclass(frozen=True)
class Entry:
    """One line: its time, its log, and its run.

    `line` is None where it continues the one before.
    """

    seconds: float
    source: str
    text: str
    run: str
    line: LogLine | None


class DatedLog:
    """The lines of one log in their own order, each with a time and a run."""

    def __init__(self, name: str, run: str = "") -> None:
        """`run` is that of lines that name none."""
        self.name = name
        self._run = run
        self._seconds: float | None = None

    def date_last(self, texts: Sequence[str], written: float) -> list[Entry]:
        """The end of the log.

        Lines before the first that has a time take that; if none has one, `written`.
        """
        dated = (line.seconds for line in map(read_line, texts) if line is not None)
        self._seconds = next(dated, written if texts else None)
        return [self.date(text, written) for text in texts]

    def date(self, text: str, came: float, seconds: float | None = None) -> Entry:
        """The next line, which arrived at `came`.

        `seconds` is its time where the log keeps that beside the text.

        A line without a time or a run of its own, such as the rest of a message, takes those of the
        line before.
        """
        line = read_line(text)
        if line is not None and line.role:
            self._run = line.run
        if seconds is not None:
            self._seconds = seconds
        elif line is not None:
            self._seconds = line.seconds
        if self._seconds is None:
            stamp = came
        else:
            stamp = self._seconds
        return Entry(stamp, self.name, text, self._run, line)


def with_beginning(texts: Sequence[str], count: int) -> Sequence[str]:
    """Return the last `count` lines, and those before them back to where their message begins.

    Without that beginning they are the last `count` alone.
    """
    first = max(0, len(texts) - count)
    begins = (
        at for at in range(first, -1, -1) if at < len(texts) and read_line(texts[at]) is not None
    )
    return texts[next(begins, first) :]


def in_order(entries: Iterable[Entry]) -> list[Entry]:
    """Sort entries by time; those of one log with the same time stay together."""
    return sorted(entries, key=lambda entry: entry.seconds)


class Interleaver:
    """Sorts lines that arrive from several places, as far as a wait of `hold_seconds` allows."""

    def __init__(self, hold_seconds: float = HOLD_SECONDS) -> None:
        self._hold_seconds = hold_seconds
        self._waiting: list[tuple[float, Entry]] = []

    def put(self, entry: Entry, now: float) -> None:
        """Add a line at the time `now` of a monotonic clock."""
        self._waiting.append((now, entry))

    def take(self, now: float) -> list[Entry]:
        """Remove the lines that have waited long enough, with all older ones."""
        ripe = [
            entry.seconds for arrived, entry in self._waiting if arrived <= now - self._hold_seconds
        ]
        if not ripe:
            return []
        last = max(ripe)
        due = [entry for _, entry in self._waiting if entry.seconds <= last]
        self._waiting = [
            (arrived, entry) for arrived, entry in self._waiting if entry.seconds > last
        ]
        return in_order(due)


@dataclass(frozen=True)
class Shown:
    """Which lines are shown: those of `run` unless it is empty, as JSON for programs."""

    width: int
    run: str = ""
    for_programs: bool = False
    since: float = 0.0

    def wants(self, entry: Entry) -> bool:
        """Whether to show the line."""
        return self.run in ("", entry.run) and entry.seconds >= self.since

    def render(self, entry: Entry) -> str:
        """`22:45:01.123 worker:0   | text`, or one JSON object."""
        if self.for_programs:
            return as_json(entry)
        milliseconds = whole_milliseconds(entry.seconds)
        clock = (
            time.strftime("%H:%M:%S", time.localtime(milliseconds // 1000))
            + f".{milliseconds % 1000:03d}"
        )
        if entry.line is None:
            text = entry.text
        else:
            text = entry.line.shown
        lines = (line.removesuffix("\r") for line in text.split("\n"))
        return "\n".join(
            f"{clock} {one_line(entry.source):<{self.width}} | {visible(line)}" for line in lines
        )


def as_json(entry: Entry) -> str:
    """Return the JSON object as it was written, else one with the same fields, in ASCII."""
    if entry.line is None:
        line = LogLine(
            entry.seconds, entry.text.strip(), role=" ".join(entry.source.split()), run=entry.run
        )
        return as_ascii(line.to_json())
    return as_ascii(parsed_json(entry.text) if entry.text.startswith("{") else entry.line.to_json())


def readable(text: str) -> str:
    """A line of a job's output for a person: the message where it is JSON, else the line."""
    if text.startswith("{"):
        line = read_line(text)
    else:
        line = None
    return visible(text.removesuffix("\r") if line is None else line.shown)
