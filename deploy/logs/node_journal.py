"""The journal of a node as a log: read, and followed from where reading ended. Commands and lines only: pure."""

from collections.abc import Sequence

from deploy.logs.journal import parse_line
from deploy.logs.log_merge import Entry, Source

JOURNALCTL = ("journalctl",)

_PLAIN = "pscluster.service"
"""Beside a pattern: alone, one that matches no unit in the journal yet makes journalctl fail."""


def unit_pattern(role: str, index: int) -> str:
    """What `journalctl -u` is given for a task: a coordinator's unit is that of its job."""
    return "pscluster-job@*" if role == "coordinator" else f"pscluster-{role}-{index}.service"


class NodeJournal:
    """What stands in a node's journal of some units; each line has the time that the journal has for it."""

    def __init__(self, node: str, column: str, patterns: Sequence[str], count: int, since: float) -> None:
        """`column`: the node beside a line. Of what is there already: the last `count`, from `since` on."""
        self._node, self._column = node, column
        units = dict.fromkeys((*patterns, _PLAIN))
        # --all: a field beyond 4096 bytes, such as a line of JSON with a traceback, would be left out.
        options = ["--no-pager", "-q", "--all", "-o", "json", "--output-fields=MESSAGE,_SYSTEMD_UNIT,UNIT"]
        self._command = [*JOURNALCTL, *options, *(word for unit in units for word in ("-u", unit))]
        self._since = [f"--since=@{since:.6f}"] if since > 0 else []
        self._count = max(1, count)  # one at least: it says where to go on
        self._sources: dict[str, Source] = {}
        self._was_read, self._cursor = False, ""

    @property
    def user(self) -> None:
        """Root reads it: the journal is root's own."""

    def reading(self) -> list[str]:
        """The command that shows the end of it, the newest line first."""
        # Without --reverse journalctl 252 takes `-n` with `--since` for the first lines since then, later ones do not.
        return [*self._command, *self._since, "-n", str(self._count), "--reverse"]

    def read(self, output: bytes, follow: bool = False) -> list[Entry]:
        """The lines in what `reading` printed; they are whole."""
        self._was_read = True
        texts = output.decode("utf-8", errors="replace").split("\n")
        return [entry for text in reversed(texts) if (entry := self.came(text)) is not None]

    def following(self) -> list[str]:
        """The command that shows all that is written after what was read, and goes on."""
        if self._cursor:
            begin = [f"--after-cursor={self._cursor}", "--no-tail"]
        elif self._was_read:  # there was nothing: all there is now is new
            begin = [*self._since, "--no-tail"]
        else:
            begin = ["-n", "0"]
        return [*self._command, *begin, "-f"]

    def came(self, text: str) -> Entry | None:
        """A line of either; None for what is none."""
        line = parse_line(self._node, text)
        if line is None:
            return None
        self._cursor = line.cursor
        source = self._sources.setdefault(line.unit, Source(f"{self._column} {line.unit}"))
        return source.place(line.text, line.seconds, line.seconds)
