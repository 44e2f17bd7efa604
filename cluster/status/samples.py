"""What is kept of a run over time, thinned so that a run of any length fits. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from cluster.status.view import EpochView, PiPoint, SampleView

MOST_SAMPLES = 600
MOST_EPOCHS = 1000
SHORTEST_SECONDS = 1.0
"""Between two samples of a run's first ten minutes."""
GROWTH = 1.02
"""From one kept estimate of pi to the next, in samples: about 350 of them over three decades."""


@dataclass
class Samples:
    """Samples at equal distances, which double whenever there are too many."""

    interval_seconds: float = SHORTEST_SECONDS
    kept: list[SampleView] = field(default_factory=list)

    def add(self, sample: SampleView) -> None:
        """One more; those that are there become half as many when they are too many."""
        self.kept.append(sample)
        if len(self.kept) > MOST_SAMPLES:
            self.kept = halved(self.kept)
            self.interval_seconds *= 2


def halved(samples: Sequence[SampleView]) -> list[SampleView]:
    """Each two neighbours as one, the newest ones together; an odd one out stays as it is, at the beginning."""
    odd = len(samples) % 2
    pairs = zip(samples[odd::2], samples[odd + 1 :: 2], strict=True)
    return [*samples[:odd], *(_merged(first, second) for first, second in pairs)]


def _merged(first: SampleView, second: SampleView) -> SampleView:
    tasks = first.workers.keys() | second.workers.keys()
    return SampleView(
        second.seconds,
        mean(value for value in (first.loss, second.loss) if value is not None),
        (first.windows_per_second + second.windows_per_second) / 2,
        mean(value for value in (first.staleness, second.staleness) if value is not None),
        {task: (first.workers.get(task, 0.0) + second.workers.get(task, 0.0)) / 2 for task in sorted(tasks)},
        second.live,
    )


def mean(values: Iterable[float]) -> float | None:
    """None of nothing."""
    known = list(values)
    return sum(known) / len(known) if known else None


@dataclass
class Estimates:
    """Estimates of pi at sample counts that grow by GROWTH, and the latest one."""

    kept: list[PiPoint] = field(default_factory=list)
    latest: PiPoint | None = None

    def add(self, point: PiPoint) -> bool:
        """One more; whether it is kept for good."""
        self.latest = point
        if self.kept and point.samples < self.kept[-1].samples * GROWTH:
            return False
        self.kept.append(point)
        return True

    def points(self) -> tuple[PiPoint, ...]:
        """All there are to draw."""
        if self.latest is None or (self.kept and self.kept[-1] == self.latest):
            return tuple(self.kept)
        return (*self.kept, self.latest)


def with_epoch(epochs: Sequence[EpochView], added: EpochView) -> list[EpochView]:
    """The epochs and one more. What a resumed run trains again takes the place of what was lost."""
    stages = [epoch.stage for epoch in epochs]
    begins = stages.index(added.stage) if added.stage in stages else len(epochs)
    kept = [
        epoch
        for place, epoch in enumerate(epochs)
        if place < begins or (epoch.stage == added.stage and epoch.epoch < added.epoch)
    ]
    kept.append(added)
    if len(kept) > MOST_EPOCHS:
        kept = kept[::-2][::-1]  # the newest one stays
    return kept
