"""The progress of a job for a person.

Live bars on a terminal, one line an epoch elsewhere, nothing when quiet.
"""

import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from rich.console import RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID
from rich.table import Column
from rich.text import Text
from typing_extensions import override

from cluster.jobs.run_status import Now
from core.logs import is_animated
from core.logs.screen import Screen, coloured, words
from core.status import events
from core.status.events import Event
from core.status.parts import figure_text
from core.status.records import Pace
from core.status.state import RunState

log = logging.getLogger(__name__)

NARROW_COLUMNS = 110
"""A terminal of 80 columns keeps its bar, its count and the time left by giving up most of the
bar's width."""


class _Column(ProgressColumn):
    """A column whose text a function makes of the task."""

    def __init__(self, text_of: Callable[[Task], Text], *, no_wrap: bool = True) -> None:
        super().__init__(Column(no_wrap=no_wrap))
        self._text_of = text_of

    @override
    def render(self, task: Task) -> Text:
        return self._text_of(task)


def _count(task: Task) -> Text:
    """`3/12`; nothing where the total is unknown."""
    if task.total is None:
        return Text()
    return coloured(
        f"{int(task.completed):{len(str(int(task.total)))}}/{int(task.total)}", "progress.download"
    )


def _facts(task: Task) -> Text:
    """Return the words about a task.

    Their column is the first to give way where the terminal is narrow, and never takes two
    rows.
    """
    text = words(str(task.fields["facts"]))
    text.no_wrap = True
    text.overflow = "ellipsis"
    return text


def _remaining_text(task: Task) -> Text:
    """`0:42`, the time left; nothing where it is unknown."""
    remaining_seconds = task.fields["left"]
    if remaining_seconds is None:
        return Text()
    minutes, seconds = divmod(int(remaining_seconds), 60)
    hours, minutes = divmod(minutes, 60)
    clock = f"{minutes}:{seconds:02}"
    if hours:
        clock = f"{hours}:{minutes:02}:{seconds:02}"
    return coloured(clock, "progress.remaining")


@dataclass(frozen=True)
class BarShown:
    """What a bar shows when it is drawn."""

    done: int
    facts: str
    remaining_seconds: float | None
    """Seconds."""


class _Bars(Progress):
    """Bars that ask what they show each time that they are drawn, ten times a second."""

    @override
    def get_renderables(self) -> Iterable[RenderableType]:
        for task in self.tasks:
            if task.fields["shown"] is not None:
                now: BarShown = task.fields["shown"]()
                task.completed = now.done  # not by `update`: it may be taken away meanwhile
                task.fields.update(facts=now.facts, left=now.remaining_seconds)
        return super().get_renderables()


class Display:
    """A job's voice.

    Everything goes to standard error: standard output carries the result alone.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self.console = Screen(stderr=True, quiet=quiet, soft_wrap=not sys.stderr.isatty())
        narrow = self.console.width < NARROW_COLUMNS
        self._progress = _Bars(
            _Column(lambda task: words(task.description)),
            BarColumn(bar_width=8 if narrow else 24),
            _Column(_count),
            _Column(_facts, no_wrap=False),
            _Column(_remaining_text),
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
        """Show one line that stays, in the run's log too."""
        log.info("%s", line)
        self.console.print(line)

    @contextmanager
    def busy(self, name: str) -> Iterator[None]:
        """A bar for work of unknown length."""
        task = self._progress.add_task(name, total=None, facts="", left=None, shown=None)
        try:
            yield
        finally:
            self._progress.remove_task(task)

    def bar(self, name: str, total: int, contents: Callable[[], BarShown] | None = None) -> "Bar":
        """Show a bar of `total` units: what `shown()` says, else what is set."""
        return Bar(self._progress, name, total, contents)


class Bar:
    """One progress bar."""

    def __init__(
        self,
        progress: Progress,
        name: str,
        total: int,
        contents: Callable[[], BarShown] | None = None,
    ) -> None:
        self._progress = progress
        self._pace = Pace(total)
        self._facts = ""
        self._task: TaskID = progress.add_task(
            name, total=total or None, facts="", left=None, shown=contents or self._contents
        )

    def _contents(self) -> BarShown:
        remaining_seconds = self._pace.remaining_seconds(time.monotonic())
        return BarShown(self._pace.done, self._facts, remaining_seconds)

    def set(self, done: int, facts: str = "") -> None:
        """Set the units that are done, and words about them if there are new ones."""
        self._pace = self._pace.advanced(done, time.monotonic())
        self._facts = facts or self._facts

    def close(self) -> None:
        """Take the bar away."""
        self._progress.remove_task(self._task)


def _brief(loss: float) -> str:
    """Return a loss for a bar: `0.81`, or three digits where that says too little or too much."""
    if loss == 0 or 0.05 <= abs(loss) < 1e4:
        return f"{loss:.2f}"
    return f"{loss:.3g}"


def bar_facts(state: RunState) -> str:
    """Return the words beside the bar of the present stage."""
    stage = state.progress
    latest = ""
    if stage.epoch is not None:
        latest = f"  {stage.epoch.windows_per_second:,.0f} {state.unit}/s"
        held_out = stage.epoch.validation
        if held_out is not None and held_out.accuracy is None:
            latest += f"  val. {_brief(held_out.loss)}"
        elif held_out is not None:
            latest += f"  val. {held_out.accuracy:.3f}"
    if state.training is not None and stage.loss is not None:
        count = state.training.count
        epoch = f"epoch {count.epoch + 1}/{count.planned_epochs}"
        return f"{epoch}  loss {_brief(stage.loss)}{latest}"
    point = state.estimates.latest
    if point is not None:
        return f"{point.estimate:.7f} +- {point.standard_error:.7f}"
    return latest


def model_words(epoch: int | None, state: RunState) -> str:
    """Return of which epoch the tested model is, where that is not the last one."""
    training = state.training
    if epoch is None or training is None or epoch >= training.count.epoch:
        return ""
    return f" (the model of epoch {epoch} of {training.count.epoch}, the best in validation)"


def epoch_line(event: events.EpochEnded, state: RunState) -> str:
    """Return the line that stays of an epoch."""
    planned = 0 if state.training is None else state.training.count.planned_epochs
    figures = ""
    if event.accuracy is not None:
        figures += f"  accuracy {event.accuracy:.4f}"
    if event.validation is not None:
        figures += f"  validation {event.validation.headline()}"
    return (
        f"{event.stage}: epoch {event.epoch:>3}/{planned} "
        f" {event.windows_per_second:>6,.0f} {state.unit}/s  loss {figure_text(event.loss)}"
        f"{figures} "
        f" {event.seconds_left:.0f} s left"
    )


class Terminal:
    """Shows a run on a display: a bar for each stage, a line for each epoch and for the test."""

    def __init__(self, display: Display, now: Now) -> None:
        self._display = display
        self._now = now
        self._bar: Bar | None = None
        self._total = 0
        self._busy = ExitStack()

    def consume(self, event: Event) -> None:
        """Show the event, which the state has already."""
        match event:
            case events.Stepped():
                pass
            case events.Updated(done=done) | events.Advanced(done):
                if 0 < self._total <= done:
                    self._close()
            case events.StageBegan(name, total):
                self._close()
                self._total = total
                self._bar = self._display.bar(name, total, self._contents)
            case events.Validating(begins):
                self._busy.close()
                if begins:
                    self._busy.enter_context(self._display.busy("validation"))
            case events.EpochEnded():
                state, _ = self._now()
                self._display.say(epoch_line(event, state))
            case events.StoppedEarly():
                self._close()
                self._display.say(event.line())
            case events.FiguresComputed("test", figures, epoch=epoch):
                self._close()
                state, _ = self._now()
                self._display.say(f"test: {figures.line()}{model_words(epoch, state)}")
            case events.Ended():
                self._close()

    def _contents(self) -> BarShown:
        state, seconds = self._now()
        progress = state.progress
        return BarShown(progress.done, bar_facts(state), progress.remaining_seconds(seconds))

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
