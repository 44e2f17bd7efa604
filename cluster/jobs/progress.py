"""The progress of a job for a person: live bars on a terminal, one line an epoch elsewhere, nothing when quiet."""

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID
from rich.table import Column
from rich.text import Text

from cluster.logs.screen import Screen, coloured, words
from cluster.logs.terminal import is_animated
from cluster.status import events
from cluster.status.events import Event
from cluster.status.state import Pace

log = logging.getLogger(__name__)

NARROW_COLUMNS = 110
"""A terminal of 80 columns keeps its bar, its count and the time left by giving up most of the bar's width."""


class _Column(ProgressColumn):
    """A column whose text a function makes of the task."""

    def __init__(self, text_of: Callable[[Task], Text], *, no_wrap: bool = True) -> None:
        super().__init__(Column(no_wrap=no_wrap))
        self._text_of = text_of

    def render(self, task: Task) -> Text:
        """See `rich.progress.ProgressColumn`."""
        return self._text_of(task)


def _count(task: Task) -> Text:
    """`3/12`; nothing where the total is unknown."""
    if task.total is None:
        return Text()
    return coloured(f"{int(task.completed):{len(str(int(task.total)))}}/{int(task.total)}", "progress.download")


def _facts(task: Task) -> Text:
    """Words about a task: the first column to give way where the terminal is narrow, and never in two rows."""
    text = words(str(task.fields["facts"]))
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _left(task: Task) -> Text:
    """`0:42`, the time left; nothing where it is unknown."""
    pace = task.fields.get("pace")
    left = None if pace is None else pace.remaining_seconds(time.monotonic())
    if left is None:
        return Text()
    minutes, seconds = divmod(int(left), 60)
    hours, minutes = divmod(minutes, 60)
    shown = f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
    return coloured(shown, "progress.remaining")


class Display:
    """A job's voice. Everything goes to standard error: standard output carries the result alone."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.console = Screen(stderr=True, quiet=quiet, soft_wrap=not sys.stderr.isatty())
        narrow = self.console.width < NARROW_COLUMNS
        self._progress = Progress(
            _Column(lambda task: words(task.description)),
            BarColumn(bar_width=8 if narrow else 24),
            _Column(_count),
            _Column(_facts, no_wrap=False),
            _Column(_left),
            console=self.console,
            disable=quiet or not is_animated(sys.stderr),
            transient=True,
        )

    def __enter__(self) -> "Display":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def say(self, line: str) -> None:
        """One line that stays, in the run's log too."""
        log.info("%s", line)
        self.console.print(line)

    @contextmanager
    def busy(self, name: str) -> Iterator[None]:
        """A bar for work of unknown length."""
        task = self._progress.add_task(name, total=None, facts="")
        try:
            yield
        finally:
            self._progress.remove_task(task)

    def bar(self, name: str, total: int) -> "Bar":
        """A bar of `total` units."""
        return Bar(self._progress, name, total)


class Bar:
    """One progress bar."""

    def __init__(self, progress: Progress, name: str, total: int) -> None:
        self._progress, self._pace, self._facts = progress, Pace(total), ""
        self._task: TaskID = progress.add_task(name, total=total or None, facts="", pace=self._pace)

    @property
    def is_full(self) -> bool:
        """Whether all units are done."""
        return 0 < self._pace.total <= self._pace.done

    def set(self, done: int, facts: str = "") -> None:
        """Set the units that are done, and words about them if there are new ones."""
        self._pace = self._pace.advanced(done, time.monotonic())
        self._facts = facts or self._facts
        self._progress.update(self._task, completed=done, pace=self._pace, facts=self._facts)

    def close(self) -> None:
        """Take the bar away."""
        self._progress.remove_task(self._task)


class Terminal:
    """Shows the events of a job on a display: a bar for each stage, a line for each epoch and for the test."""

    def __init__(self, display: Display) -> None:
        self._display = display
        self._bar: Bar | None = None
        self._busy = ExitStack()
        self._epoch, self._epochs, self._latest = 0, 0, ""

    def consume(self, event: Event) -> None:
        """See Stream."""
        match event:
            case events.Stepped():
                pass
            case events.Updated():
                facts = f"epoch {self._epoch + 1}/{self._epochs}  loss {event.loss:.2f}{self._latest}"
                self._set(event.done, facts)
            case events.PointsDrawn():
                self._latest = f"{event.estimate:.7f} +- {event.standard_error:.7f}"
            case events.Advanced(done):
                self._set(done, self._latest)
            case events.StageBegan(name, total):
                self._close()
                self._bar, self._latest = self._display.bar(name, total), ""
            case events.Planned(epochs, epochs_done):
                self._epochs, self._epoch = epochs, epochs_done
            case events.Validating(begins):
                self._busy.close()
                if begins:
                    self._busy.enter_context(self._display.busy("validation"))
            case events.EpochEnded():
                self._say_epoch(event)
            case events.StoppedEarly(stage, epoch):
                self._close()
                self._display.say(f"{stage}: stopped early after epoch {epoch}: {event.why()}")
            case events.FiguresComputed("test", figures):
                self._close()
                self._display.say(f"test: {figures.line()}")
            case events.Ended():
                self._close()

    def _set(self, done: int, facts: str = "") -> None:
        if self._bar is not None:
            self._bar.set(done, facts)
            if self._bar.is_full:
                self._close()

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _say_epoch(self, event: events.EpochEnded) -> None:
        held_out = event.validation.accuracy if event.validation is not None else None
        shown = "" if held_out is None else f"  validation accuracy {held_out:.4f}"
        self._latest = f"  {event.windows_per_second:,.0f} windows/s"
        self._latest += "" if held_out is None else f"  val. {held_out:.3f}"
        self._epoch = event.epoch
        self._display.say(
            f"{event.stage}: epoch {event.epoch:>3}/{self._epochs}  {event.windows_per_second:>6,.0f} windows/s  "
            f"loss {event.loss:.4f}  accuracy {event.accuracy:.4f}{shown}  {event.seconds_left:.0f} s left"
        )
