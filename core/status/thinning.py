"""What is kept of a run over time, thinned so that a run of any length fits.

Pure: nothing is changed in place.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from core.status.events import EpochEnded, Stamped
from core.status.parts import Seen
from core.status.view import PiPoint, SampleView, SpanView

MOST_SAMPLES = 600
MOST_EPOCHS = 1000
SHORTEST_SECONDS = 1.0
"""Time between two samples of a run's first ten minutes."""
GROWTH = 1.02
"""Factor from one kept estimate of pi to the next, in samples: about 350 over three decades."""
MOST_SPANS = 64
"""The most spans of one worker.

The shortest spans of a worker that comes and goes more often are left out.
"""
FIRST_LINES = 100
LATEST_LINES = 400
"""Lines of the event log that are kept of the run's beginning, and of its end."""
AGAIN_SECONDS = 10.0
"""An event that repeats one of the last ten seconds adds no line."""

WORKING = "working"
AWAY = "away"
SUSPECTED = "suspected"
SPAN_OF_PHASE = {
    "idle": WORKING,
    "busy": WORKING,
    "suspect": SUSPECTED,
    "slow": SUSPECTED,
    "fenced": SUSPECTED,
    "absent": AWAY,
    "joining": AWAY,
    "drained": AWAY,
}
"""State in the timeline by phase of membership."""


def live_workers(workers: Mapping[str, Seen]) -> int:
    """Count those that are in the cluster."""
    return sum(SPAN_OF_PHASE.get(worker.phase, AWAY) != AWAY for worker in workers.values())


StampedEpoch = tuple[float, EpochEnded]


@dataclass(frozen=True)
class Samples:
    """Samples at equal distances, which double whenever there are too many."""

    interval_seconds: float = SHORTEST_SECONDS
    series: tuple[SampleView, ...] = ()

    def with_one(self, sample: SampleView) -> "Samples":
        """Add a sample; too many become half as many."""
        series = (*self.series, sample)
        if len(series) <= MOST_SAMPLES:
            return replace(self, series=series)
        return Samples(self.interval_seconds * 2, halved(series))


def halved(samples: Sequence[SampleView]) -> tuple[SampleView, ...]:
    """Return each two neighbours as one, the newest ones together.

    An odd one out stays as it is, at the beginning.
    """
    odd = len(samples) % 2
    pairs = zip(samples[odd::2], samples[odd + 1 :: 2], strict=True)
    return (*samples[:odd], *(_merged(first, second) for first, second in pairs))


def _merged(first: SampleView, second: SampleView) -> SampleView:
    tasks = first.workers.keys() | second.workers.keys()
    return SampleView(
        second.seconds,
        mean(value for value in (first.loss, second.loss) if value is not None),
        (first.windows_per_second + second.windows_per_second) / 2,
        mean(value for value in (first.staleness, second.staleness) if value is not None),
        {
            task: (first.workers.get(task, 0.0) + second.workers.get(task, 0.0)) / 2
            for task in sorted(tasks)
        },
        second.live,
    )


def mean(values: Iterable[float]) -> float | None:
    """Return the mean of the values, or None where there are none."""
    numbers = list(values)
    if numbers:
        return sum(numbers) / len(numbers)
    return None


@dataclass(frozen=True)
class Estimates:
    """Estimates of pi at sample counts that grow by GROWTH, and the latest one."""

    milestones: tuple[PiPoint, ...] = ()
    latest: PiPoint | None = None

    def keeps(self, samples: int) -> bool:
        """Whether an estimate after this many samples is kept for good."""
        return not self.milestones or samples >= self.milestones[-1].samples * GROWTH

    def with_one(self, point: PiPoint) -> "Estimates":
        """Add an estimate, which is the latest."""
        return Estimates(
            (*self.milestones, point) if self.keeps(point.samples) else self.milestones, point
        )

    def points(self) -> tuple[PiPoint, ...]:
        """Return all there are to draw."""
        if self.latest is None or (
            self.milestones and self.milestones[-1].samples >= self.latest.samples
        ):
            return self.milestones
        return (*self.milestones, self.latest)


def with_epoch(epochs: Sequence[StampedEpoch], added: StampedEpoch) -> tuple[StampedEpoch, ...]:
    """The epochs and one more. What a resumed run trains again takes the place of what was lost."""
    _, new = added
    stages = [epoch.stage for _, epoch in epochs]
    if new.stage in stages:
        begins = stages.index(new.stage)
    else:
        begins = len(epochs)
    again = [
        (at, epoch)
        for at, epoch in epochs[begins:]
        if epoch.stage == new.stage and epoch.epoch < new.epoch
    ]
    all_epochs = (*epochs[:begins], *again, added)
    # the newest one stays
    if len(all_epochs) > MOST_EPOCHS:
        return all_epochs[::-2][::-1]
    return all_epochs


def with_line(lines: tuple[Stamped, ...], added: Stamped) -> tuple[Stamped, ...]:
    """The events of the event log and one more, unless it repeats one of the last seconds."""
    seconds, event = added
    for before, other in reversed(lines):
        if seconds - before >= AGAIN_SECONDS:
            break
        if other == event:
            return lines
    all_lines = (*lines, added)
    if len(all_lines) <= FIRST_LINES + LATEST_LINES:
        return all_lines
    return (*all_lines[:FIRST_LINES], *all_lines[FIRST_LINES + 1 :])


@dataclass(frozen=True)
class Spans:
    """The timeline: for each task its spans in order, of which the last may have no end yet."""

    by_task: Mapping[str, tuple[SpanView, ...]] = field(default_factory=dict)

    def entered(self, task: str, state: str, seconds: float) -> "Spans":
        """The task is in this state from now on."""
        before = self.by_task.get(task, ())
        if before and before[-1].end_seconds is None and before[-1].state == state:
            return self
        # Where it was away for no time, its span is one.
        return self.of(
            task, _joined((*_ended(before, seconds), SpanView(task, state, seconds, None)))
        )

    def of(self, task: str, spans: Sequence[SpanView]) -> "Spans":
        """Return the spans with these of the task."""
        return Spans({**self.by_task, task: tuple(spans)})

    def ended(self, seconds: float) -> "Spans":
        """End all spans, with the run or with its coordinator."""
        return Spans({task: _ended(spans, seconds) for task, spans in self.by_task.items()})

    def all(self) -> tuple[SpanView, ...]:
        """Return all spans by task in the order they came, then by time."""
        return tuple(span for spans in self.by_task.values() for span in spans)


def _ended(spans: tuple[SpanView, ...], seconds: float) -> tuple[SpanView, ...]:
    """The spans with an end for the last one; a span that took no time is none."""
    if not spans or spans[-1].end_seconds is not None:
        return spans
    *before, last = spans
    if seconds <= last.begin_seconds:
        return tuple(before)
    ended = (*before, replace(last, end_seconds=seconds))
    if len(ended) > MOST_SPANS:
        return without_shortest(ended)
    return ended


def without_shortest(spans: Sequence[SpanView]) -> tuple[SpanView, ...]:
    """Return the spans without their shortest, whose time goes to the one before it.

    Neighbours in one state become one.
    """
    lengths = [(span.end_seconds or span.begin_seconds) - span.begin_seconds for span in spans[1:]]
    place = 1 + min(range(len(lengths)), key=lengths.__getitem__)
    remaining_spans = [
        *spans[: place - 1],
        replace(spans[place - 1], end_seconds=spans[place].end_seconds),
        *spans[place + 1 :],
    ]
    return _joined(remaining_spans)


def _joined(spans: Sequence[SpanView]) -> tuple[SpanView, ...]:
    """Return the spans, in which neighbours in one state are one."""
    joined = list[SpanView]()
    for span in spans:
        if joined and (joined[-1].state, joined[-1].end_seconds) == (
            span.state,
            span.begin_seconds,
        ):
            joined[-1] = replace(joined[-1], end_seconds=span.end_seconds)
        else:
            joined.append(span)
    return tuple(joined)
