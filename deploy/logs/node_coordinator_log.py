"""The coordinator's log on its node: read, and followed from the byte at which reading ended."""

import time
from collections.abc import Callable

from deploy.common.command_line import quoted, shell
from deploy.logs.coordinator_log import NAME
from deploy.logs.log_merge import LOOK_BACK_LINES, Entry, Source, with_beginning
from deploy.render.job_unit import NodePlaces
from deploy.rooted.jobs import ORDER

_MARK = "\x1e"
"""Begins the line before those of a file, which says which one it is. Our own logs never hold it."""


class NodeCoordinatorLog:
    """The log of `run`, else of the run of the newest job.

    It is what a job said that never got as far as a run, if that is the newest. A job that begins later is followed
    from its beginning.
    """

    def __init__(
        self,
        name: str,
        runs: str,
        run: str,
        count: int,
        places: NodePlaces = NodePlaces(),  # noqa: B008  frozen
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`runs`: the folder on the node that holds them. Of what is there already the last `count` lines."""
        self._name, self._run, self._count, self._clock = name, run, max(1, count), clock
        self._user = places.user
        jobs = quoted(f"{places.state}/jobs")
        # Earlier versions did not write down the order.
        newest = (
            f"j=$(tail -n 1 {jobs}/{ORDER} 2>/dev/null); "
            f'[ -n "$j" ] || j=$(ls -1 {jobs} 2>/dev/null | sort | tail -n 1); '
            f'j={jobs}/$j; f="$(head -c 4096 "$j/run" 2>/dev/null)/{NAME}"; [ -f "$f" ] || f="$j/output.log"'
        )
        self._find = f"f={quoted(f'{runs}/{run}/{NAME}')}" if run else newest
        self._source = Source(name, run)
        self._path: str | None = None
        self._position = 0

    @property
    def user(self) -> str:
        """The account reads its own log: root would follow its links."""
        return self._user

    def reading(self) -> list[str]:
        """The command that shows the end of it, after size, time and name of the file."""
        # The size is settled first: what is written meanwhile belongs to what comes.
        script = (
            f'{self._find}; h=$(stat -c "%s %Y %n" -- "$f" 2>/dev/null) || exit 0; printf "\\036%s\\n" "$h"; '
            f'head -c "${{h%% *}}" -- "$f" | tail -n {self._count + LOOK_BACK_LINES:d}'
        )
        return shell(script)

    def read(self, output: bytes, follow: bool = False) -> list[Entry]:
        """The lines in what `reading` printed. With `follow` one that is not whole yet is left for later."""
        self._path = ""
        # What a start file of the account prints comes first.
        head, _, content = output.partition(_MARK.encode())[2].partition(b"\n")
        if not head:
            return []
        try:
            size, written, self._path = head.decode("utf-8", errors="replace").split(" ", 2)
            size_bytes, written_seconds = int(size), float(written)
        except ValueError:
            return []
        whole, newline, rest = content.rpartition(b"\n")
        kept = whole + newline if follow else content
        self._position = size_bytes - (len(rest) if follow else 0)
        texts = kept.decode("utf-8", errors="replace").removesuffix("\n").split("\n") if kept else []
        return self._source.place_last(with_beginning(texts, self._count), written_seconds)

    def following(self) -> list[str]:
        """The command that shows all that is written after what was read, and goes on with the next run's."""
        known = f"{self._find}; w=$f; k='-n 0'"
        if self._path is not None:
            known = f"w={quoted(self._path)}; k='-c +{self._position + 1:d}'"
        # `tail -F` alone would stay with one run's log. The last but one has had its time to show everything when the
        # next comes. The trap ends both with us.
        script = (
            "p=; o=; g=; trap 'kill $o $p 2>/dev/null; exit' TERM INT HUP; "
            # What a job said before it got as far as a run stands in the run's log too.
            'show() { [ -z "$o" ] || kill $o 2>/dev/null; o=$p; '
            '[ -z "$o" ] || [ "$g" != "$j/output.log" ] || { kill $o 2>/dev/null; o=; }; printf "\\036%s\\n" "$f"; '
            "tail $k -F -- \"$f\" 2>/dev/null & p=$!; g=$f; k='-c +1'; }; "
            f'{known}; f=$w; if [ -f "$f" ]; then show; else k="-c +1"; fi; '
            f'while :; do {self._find}; [ "$f" = "$g" ] || [ ! -f "$f" ] || show; sleep 1; done'
        )
        return shell(script)

    def came(self, text: str) -> Entry | None:
        """A line of what `following` prints; None for the name of a file."""
        if not text.startswith(_MARK):
            return self._source.place(text, self._clock())
        path = text.removeprefix(_MARK)
        if path != self._path:
            self._path, self._source = path, Source(self._name, self._run)
        return None
