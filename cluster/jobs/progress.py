"""What a person sees while a job runs: live bars on a terminal, one line an epoch elsewhere, nothing when quiet."""

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TaskID, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

from cluster.logs.screen import Screen, words
from cluster.logs.terminal import is_animated

if TYPE_CHECKING:
    from cluster.jobs.observer import Observer

log = logging.getLogger(__name__)

NARROW_COLUMNS = 110
"""A terminal of 80 columns keeps its bar, its count and the time left by giving up most of the bar's width."""


class _Count(MofNCompleteColumn):
    """`3/12`; nothing where nobody knows how much there is."""

    def render(self, task: Task) -> Text:
        """See `rich.progress.ProgressColumn`."""
        return Text() if task.total is None else super().render(task)


class _Left(TimeRemainingColumn):
    """`0:42`; nothing where nobody knows."""

    def render(self, task: Task) -> Text:
        """See `rich.progress.ProgressColumn`."""
        return Text() if task.total is None else super().render(task)


class _Name(ProgressColumn):
    """What the task is."""

    def render(self, task: Task) -> Text:
        """See `rich.progress.ProgressColumn`."""
        return words(task.description)


class _Facts(ProgressColumn):
    """What there is to say of a task: the first to give way where the terminal is narrow, and never in two rows."""

    def __init__(self) -> None:
        super().__init__(Column(no_wrap=False))

    def render(self, task: Task) -> Text:
        """See `rich.progress.ProgressColumn`."""
        text = words(str(task.fields["facts"]))
        text.no_wrap, text.overflow = True, "ellipsis"
        return text


class Display:
    """A job's voice. Everything goes to standard error: standard output carries the result alone."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self.console = Screen(stderr=True, quiet=quiet, soft_wrap=not sys.stderr.isatty())
        narrow = self.console.width < NARROW_COLUMNS
        self._progress = Progress(
            _Name(Column(no_wrap=True)),
            BarColumn(bar_width=8 if narrow else 24),
            _Count(),
            _Facts(),
            _Left(compact=True),
            console=self.console,
            disable=quiet or not is_animated(sys.stderr),
            transient=True,
        )

    def __enter__(self) -> "Display":
        self._progress.start()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _value: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def say(self, line: str) -> None:
        """One line that stays, in the run's log too."""
        log.info("%s", line)
        self.console.print(line)

    @contextmanager
    def busy(self, name: str) -> Iterator[None]:
        """A bar for what takes seconds, and nobody knows how many."""
        task = self._progress.add_task(name, total=None, facts="")
        try:
            yield
        finally:
            self._progress.remove_task(task)

    def bar(self, name: str, total: int, facts: str = "") -> "Bar":
        """A bar of `total` units."""
        return Bar(self._progress, name, total, facts)


class Bar:
    """One progress bar; knows how fast it goes."""

    def __init__(self, progress: Progress, name: str, total: int, facts: str = "") -> None:
        self._progress = progress
        self._task: TaskID = progress.add_task(name, total=total, facts=facts)
        self.total, self.done, self.begin = total, 0, time.monotonic()

    def advance(self, units: int = 1, facts: str | None = None) -> None:
        """`units` more are done."""
        self.done += units
        if facts is None:
            self._progress.update(self._task, completed=self.done)
        else:
            self._progress.update(self._task, completed=self.done, facts=facts)

    def set(self, done: int, total: int) -> None:
        """So many of so many are done."""
        self.done, self.total = done, total
        self._progress.update(self._task, completed=done, total=total)

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def seconds_left(self) -> float | None:
        """At the mean speed so far, None before the first unit."""
        if not self.done:
            return None
        return (time.monotonic() - self.begin) / self.done * (self.total - self.done)

    def close(self) -> None:
        """Take the bar away."""
        self._progress.remove_task(self._task)


def told(bar: Bar, observer: "Observer") -> Callable[[], None]:
    """A function for each further unit of the bar, which the observer hears of too."""

    def advance() -> None:
        bar.advance()
        observer.advanced(bar.done)

    return advance
