"""The sources of log lines: a file or a node's journal, read and then followed, each line dated.

Commands and lines only: pure. Which file it is may change with time: a coordinator's log lies in
the folder of its run.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from core.ground.files import parsed_json
from core.logs.lines import LogLine, read_line
from deploy.common.command_line import quoted, shell
from deploy.rooted.jobs import ORDER

COORDINATOR_LOG = "coordinator.log"
_MARK = "\x1e"
"""Begins the line before those of a file, which names it. Our own logs never hold it."""


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


@dataclass(frozen=True)
class Place:
    """Where a log lies: the shell script `find` sets `f`, another file over time if it `moves`."""

    find: str
    moves: bool = False


def fixed(path: str) -> Place:
    """A file of this path."""
    return Place(f"f={quoted(path)}")


def log_of_run(runs: str, run: str) -> Place:
    """The coordinator's log of a run in the folder `runs`."""
    return fixed(f"{runs}/{run}/{COORDINATOR_LOG}")


def log_of_latest_run(runs: str) -> Place:
    """The coordinator's log in `runs` with the latest line."""
    return Place(
        f"f=$(ls -1td -- {quoted(runs)}/*/{COORDINATOR_LOG} 2>/dev/null | head -n 1)", moves=True
    )


def log_of_latest_job(folder: str) -> Place:
    """Return where the latest job in `folder` logs.

    It is the coordinator's log of its run, and the job's own output before it has a run.
    """
    jobs = quoted(folder)
    # Earlier versions did not write the order.
    find = (
        f"j=$(tail -n 1 {jobs}/{ORDER} 2>/dev/null); "
        f'[ -n "$j" ] || j=$(ls -1 {jobs} 2>/dev/null | sort | tail -n 1); '
        f'j={jobs}/$j; f="$(head -c 4096 "$j/run" 2>/dev/null)/{COORDINATOR_LOG}"; [ -f "$f" ] ||'
        ' f="$j/output.log"'
    )
    return Place(find, moves=True)


class FileLog:
    """The lines of one file, and then of the one that takes its place."""

    root = False

    def __init__(
        self,
        name: str,
        place: Place,
        count: int,
        *,
        run: str = "",
        user: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Reading takes the last `count` lines, as the account `user`.

        `run`: of lines that name none.
        """
        self.user = user
        self._name, self._place, self._run, self._count, self._clock = (
            name,
            place,
            run,
            max(1, count),
            clock,
        )
        self._source = DatedLog(name, run)
        self._path: str | None = None
        self._position = 0

    def reading(self) -> list[str]:
        """The command that prints the end of it, after size, time and name of the file."""
        # The size comes first: what is written meanwhile belongs to following.
        script = (
            f'{self._place.find}; h=$(stat -c "%s %Y %n" -- "$f" 2>/dev/null) || exit 0; printf'
            ' "\\036%s\\n" "$h"; head -c "${h%% *}" -- "$f" | tail -n'
            f" {self._count + LOOK_BACK_LINES:d}"
        )
        return shell(script)

    def read(self, output: bytes, follow: bool = False) -> list[Entry]:
        """The lines in the output of `reading`.

        With `follow` an incomplete last line is left for following.
        """
        self._path = ""
        # Output of the account's start files comes first.
        head, _, content = output.partition(_MARK.encode())[2].partition(b"\n")
        if not head:
            return []
        try:
            size, written, self._path = head.decode("utf-8", errors="replace").split(" ", 2)
            size_bytes = int(size)
            written_seconds = float(written)
        except ValueError:
            return []
        whole, newline, rest = content.rpartition(b"\n")
        if follow:
            complete = whole + newline
        else:
            complete = content
        self._position = size_bytes - (len(rest) if follow else 0)
        if complete:
            texts = complete.decode("utf-8", errors="replace").removesuffix("\n").split("\n")
        else:
            texts = []
        return self._source.date_last(with_beginning(texts, self._count), written_seconds)

    def following(self) -> list[str]:
        """The command that prints every later line, those of the next file too, and stays."""
        if self._path is None:
            begin = "-n 0"
        else:
            begin = f"-c +{self._position + 1:d}"
        if not self._place.moves:
            return shell(f'{self._place.find}; exec tail {begin} -F -- "$f" 2>/dev/null')
        # Where reading failed, from now on.
        if self._path is None:
            assignment = f"{self._place.find}; w=$f"
        else:
            assignment = f"w={quoted(self._path)}"
        # `tail -F` alone would stay with one run's log. The tail of the file before stays until the
        # next change, which gives it time to print everything. The trap ends both with us, and
        # --pid does when we are killed.
        script = (
            "p=; o=; g=; trap 'kill $o $p 2>/dev/null; exit' TERM INT HUP; "
            # A job's output from before its run stands in the run's log too.
            'show() { [ -z "$o" ] || kill $o 2>/dev/null; o=$p; '
            '[ -z "$o" ] || [ "$g" != "$j/output.log" ] || { kill $o 2>/dev/null; o=; }; printf'
            ' "\\036%s\\n" "$f"; '
            "tail $k --pid=$$ -F -- \"$f\" 2>/dev/null & p=$!; g=$f; k='-c +1'; }; "
            f"k='{begin}'; {assignment}; f=$w; if [ -f \"$f\" ]; then show; else k='-c +1'; fi; "
            f'while :; do {self._place.find}; [ "$f" = "$g" ] || [ ! -f "$f" ] || show; sleep 1;'
            " done"
        )
        return shell(script)

    def came(self, text: str) -> Entry | None:
        """A line of the output of `following`; None for the name of a file."""
        if not text.startswith(_MARK):
            return self._source.date(text, self._clock())
        path = text.removeprefix(_MARK)
        if path != self._path:
            self._path, self._source = path, DatedLog(self._name, self._run)
        return None


JOURNALCTL = ("journalctl",)

_PLAIN = "pscluster.service"
"""Goes beside every pattern: journalctl fails with a pattern alone that matches no unit in the
journal yet."""


@dataclass(frozen=True, order=True)
class JournalLine:
    """One line; `seconds` since the epoch by the node's own clock.

    `cursor`: its place, for `--after-cursor`.
    """

    seconds: float
    node: str
    unit: str
    text: str
    cursor: str = ""


def parse_line(node: str, text: str) -> JournalLine | None:
    """A line of `journalctl -o json`; None for anything else."""
    try:
        entry = parsed_json(text)
        message = entry["MESSAGE"]
        seconds = int(entry["__REALTIME_TIMESTAMP"]) / 1e6
        cursor = str(entry.get("__CURSOR") or "")
        unit = str(entry.get("_SYSTEMD_UNIT") or entry.get("UNIT") or "")
        if unit == "init.scope":
            unit = str(entry.get("UNIT", unit))
        if message is None:
            message = "(a line of more than 4096 bytes)"
        elif isinstance(message, list):  # bytes that are no UTF-8
            message = bytes(message).decode("utf-8", errors="replace")
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return JournalLine(
        seconds,
        node,
        unit.removeprefix("pscluster-").removesuffix(".service"),
        str(message),
        cursor,
    )


class Journal:
    """The lines of some units in a node's journal, each with the journal's time."""

    user = None
    root = True

    def __init__(
        self, node: str, column: str, patterns: Sequence[str], count: int, since: float
    ) -> None:
        """`column` is the node beside a line.

        Reading takes the last `count` lines, from `since` on.
        """
        self._node = node
        self._column = column
        units = dict.fromkeys((*patterns, _PLAIN))
        # --all: journalctl leaves out a field beyond 4096 bytes, such as a traceback in JSON.
        options = [
            "--no-pager",
            "-q",
            "--all",
            "-o",
            "json",
            "--output-fields=MESSAGE,_SYSTEMD_UNIT,UNIT",
        ]
        self._command = [*JOURNALCTL, *options, *(word for unit in units for word in ("-u", unit))]
        if since > 0:
            self._since = [f"--since=@{since:.6f}"]
        else:
            self._since = []
        self._count = max(1, count)  # one at least: following starts at its cursor
        self._sources: dict[str, DatedLog] = {}
        self._was_read = False
        self._cursor = ""

    def reading(self) -> list[str]:
        """The command that prints the end of it, the newest line first."""
        # Without --reverse journalctl 252 takes `-n` with `--since` for the first lines since then,
        # later ones do not.
        return [*self._command, *self._since, "-n", str(self._count), "--reverse"]

    def read(self, output: bytes, follow: bool = False) -> list[Entry]:
        """The lines in the output of `reading`; they are whole."""
        self._was_read = True
        texts = output.decode("utf-8", errors="replace").split("\n")
        return [entry for text in reversed(texts) if (entry := self.came(text)) is not None]

    def following(self) -> list[str]:
        """The command that prints every later line and stays."""
        if self._cursor:
            begin = [f"--after-cursor={self._cursor}", "--no-tail"]
        elif self._was_read:  # it was empty: every line there is now is new
            begin = [*self._since, "--no-tail"]
        else:
            begin = ["-n", "0"]
        return [*self._command, *begin, "-f"]

    def came(self, text: str) -> Entry | None:
        """A line of the output of either command; None for anything else."""
        line = parse_line(self._node, text)
        if line is None:
            return None
        self._cursor = line.cursor
        source = self._sources.setdefault(line.unit, DatedLog(f"{self._column} {line.unit}"))
        return source.date(line.text, line.seconds, line.seconds)
