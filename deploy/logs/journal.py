"""A node's journal as a source of lines, read and followed from where reading ended. Commands and lines only: pure."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from deploy.logs.log_merge import DatedLog, Entry

JOURNALCTL = ("journalctl",)

_PLAIN = "pscluster.service"
"""Goes beside every pattern: journalctl fails with a pattern alone that matches no unit in the journal yet."""


@dataclass(frozen=True, order=True)
class JournalLine:
    """One line; `seconds` since the epoch by the node's own clock. `cursor`: its place, for `--after-cursor`."""

    seconds: float
    node: str
    unit: str
    text: str
    cursor: str = ""


def parse_line(node: str, text: str) -> JournalLine | None:
    """A line of `journalctl -o json`; None for anything else."""
    try:
        entry = json.loads(text)
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
    return JournalLine(seconds, node, unit.removeprefix("pscluster-").removesuffix(".service"), str(message), cursor)


class Journal:
    """The lines of some units in a node's journal, each with the journal's time."""

    user = None
    root = True

    def __init__(self, node: str, column: str, patterns: Sequence[str], count: int, since: float) -> None:
        """`column`: the node beside a line. Reading takes the last `count` lines, from `since` on."""
        self._node, self._column = node, column
        units = dict.fromkeys((*patterns, _PLAIN))
        # --all: journalctl leaves out a field beyond 4096 bytes, such as a line of JSON with a traceback.
        options = ["--no-pager", "-q", "--all", "-o", "json", "--output-fields=MESSAGE,_SYSTEMD_UNIT,UNIT"]
        self._command = [*JOURNALCTL, *options, *(word for unit in units for word in ("-u", unit))]
        self._since = [f"--since=@{since:.6f}"] if since > 0 else []
        self._count = max(1, count)  # one at least: following starts at its cursor
        self._sources: dict[str, DatedLog] = {}
        self._was_read, self._cursor = False, ""

    def reading(self) -> list[str]:
        """The command that prints the end of it, the newest line first."""
        # Without --reverse journalctl 252 takes `-n` with `--since` for the first lines since then, later ones do not.
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
