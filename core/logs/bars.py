"""A bar on standard error for a program without a display of its own.

Elsewhere it is a line every tenth.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from core.logs import is_animated, say

Report = Callable[[str, int, int], None]
"""The stage, what is done, and what there is in all; 0 where that is not known."""
MIB = 2**20
SHORTEST_SECONDS = 2.0
"""Between two lines: what takes a moment needs none."""


@contextmanager
def bar(*, quiet: bool = False) -> Iterator[Report]:
    """Yields the function that takes progress; a new stage gets a bar of its own."""
    if quiet:
        yield lambda stage, done, total: None
        return
    if not is_animated(sys.stderr):
        yield _Lines().report
        return
    from rich.progress import (
        BarColumn,
        Progress,
        TaskID,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    from core.logs.screen import Screen

    columns = (
        TextColumn("{task.description:9}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Screen(stderr=True)) as progress:
        tasks: dict[str, TaskID] = {}

        def report(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = progress.add_task(stage, total=total or None)
            progress.update(tasks[stage], completed=done, total=total or None)

        yield report


class _Lines:
    """A line for each tenth of a stage, or each 100 MiB where its size is not known."""

    def __init__(self) -> None:
        self._said: dict[str, int] = {}
        self._last = time.monotonic()

    def report(self, stage: str, done: int, total: int) -> None:
        """Report how much is done."""
        if total:
            part = 10 * done // total
        else:
            part = done // (100 * MIB)
        now = time.monotonic()
        if part > self._said.get(stage, 0) and now - self._last >= SHORTEST_SECONDS:
            self._said[stage] = part
            self._last = now
            say(f"{stage}: {10 * part} %" if total else f"{stage}: {done // MIB} MiB", error=True)
