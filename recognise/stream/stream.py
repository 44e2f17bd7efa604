"""The stream core: readings with times in, windows of the model's channels and faults out.

It has no clock: time is what the readings say. Its memory is one window of rows, the filters' state and one reading.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cluster.data.filters import CHANNELS, FILTER_STATE, CausalFilters, FilterState
from cluster.errors import UsageError
from recognise.stream.cutting import Cutter
from recognise.stream.events import BREAKS, Fault
from recognise.stream.intake import Intake, Run, Samples
from recognise.stream.parts import Kept, Part, refuse
from recognise.stream.resampling import Resampler
from recognise.stream.settings import ACCELERATION_UNITS, ROTATION_UNITS, Settings

MOST_READINGS = 4096
"""Of one call, which bounds what it may return."""
SPARSE = 2.02
"""Steps between the readings around a sample, on average over a window: 2 is half of the model's rate."""
PLAUSIBLE_G = 0.3, 4.0
"""Mean magnitude over a window. At rest it is 1; m/s^2 taken for g give 9.8, and g taken for m/s^2 give 0.1."""
_FIRST_TOTAL = CHANNELS.index("total_acc_x")


@dataclass(frozen=True)
class Window:
    """One window.

    at, centre: seconds of its last sample and of its middle; channels: float32 (window_steps, 9); begins: the first one
    since the windows restarted, so no vote before it counts.
    """

    at: float
    centre: float
    channels: NDArray[np.float32]
    begins: bool


class Filters(Protocol):
    """What makes channels of samples. Filters that look ahead hold samples back, and `end` gives the rest."""

    def push(self, acceleration: Samples, angular_velocity: Samples) -> NDArray[np.float32]:
        """Channels, (steps, 9), of the next samples that have theirs, oldest first."""

    def end(self) -> NDArray[np.float32]:
        """Channels of the samples that were held back."""


class Stream:
    """See the module. The same readings give the same windows and faults, in chunks of any length."""

    def __init__(self, settings: Settings, filters: Callable[[], Filters] = CausalFilters) -> None:
        """`filters` makes those of each stretch without a break; a live stream has none but causal ones."""
        self.settings, self._new_filters = settings, filters
        factors = [ACCELERATION_UNITS[settings.acceleration_unit]] * 3 + [ROTATION_UNITS[settings.rotation_unit]] * 3
        self._factors = np.array(factors)
        self._intake = Intake(settings.longest_gap_seconds)
        self._filters: Filters = filters()
        self._anew()

    def push(self, times: ArrayLike, acceleration: ArrayLike, angular_velocity: ArrayLike) -> Sequence[Window | Fault]:
        """Windows and faults of the next readings, in order: times (n,) in seconds, the others (n, 3).

        Raises UsageError for other shapes, or more readings than `MOST_READINGS`.
        """
        seconds = np.asarray(times, np.float64)
        values = np.concatenate(
            [_three(acceleration, len(seconds), "acceleration"), _three(angular_velocity, len(seconds), "rotation")],
            axis=1,
        )
        if seconds.ndim != 1 or len(seconds) > MOST_READINGS:
            raise UsageError(f"times: expected up to {MOST_READINGS} numbers, got shape {seconds.shape}; send fewer")
        found: list[Window | Fault] = []
        for item in self._intake.take(seconds, values * self._factors):
            if isinstance(item, Fault):
                # What was held back is from before the break, and comes before it.
                found += self.end() if item.kind in BREAKS else ()
                found.append(item)
            else:
                found += self._of(item)
        return found

    @property
    def due(self) -> float:
        """Seconds, as the readings have them, of the sample that makes the next window whole; before the first: -inf.

        Who pushes all readings up to it at once gets the same as in small chunks, at less cost.
        """
        return self._resampler.time_of(self._cutter.due) if self._resampler.began else -math.inf

    @property
    def last(self) -> float | None:
        """Seconds of the last good reading; None before the first."""
        return self._intake.last

    def state(self) -> dict[str, Part]:
        """For `resume`: all that later windows depend on. Raises TypeError with filters that look ahead."""
        if not isinstance(self._filters, CausalFilters):
            raise TypeError("a stream has a state with causal filters alone")
        filters = self._filters.state
        of_filters = {} if filters is None else {f"filter_{name}": part for name, part in filters._asdict().items()}
        return {**self._resampler.state(), **self._cutter.state(), **of_filters, "begins": self._begins}

    def resume(self, kept: Kept) -> None:
        """Continue where another stream of the same settings had this state. Of a new stream. Raises UsageError."""
        self._resampler.resume(kept)
        self._cutter.resume(kept)
        if self._cutter.rows != self._resampler.steps:
            raise refuse(f"a row for each of {self._resampler.steps} samples", self._cutter.rows)
        self._begins = kept.flag("begins")
        self._intake.resume(self._resampler.last)
        if self._resampler.began:
            parts = {name: kept.array(f"filter_{name}", np.float64, shape) for name, shape in FILTER_STATE.items()}
            self._filters = CausalFilters.resumed(FilterState(**parts))

    def end(self) -> Sequence[Window | Fault]:
        """What filters that look ahead held back, at the end of a recording or of a stretch without a break."""
        return self._cut(self._filters.end())

    def _anew(self) -> None:
        settings = self.settings
        self._resampler = Resampler(settings.sampling_hz, settings.source_hz)
        self._filters = self._new_filters()
        self._between: Samples = np.empty(0)
        # The last column is the seconds between two readings: from it follows how many readings a window has.
        self._cutter = Cutter(settings.window_steps, settings.hop, len(CHANNELS) + 1)
        self._begins = True

    def _of(self, run: Run) -> Sequence[Window | Fault]:
        if run.begins:
            self._anew()
        samples, between = self._resampler.push(run.times, run.values)
        self._between = np.concatenate([self._between, between])
        return self._cut(self._filters.push(samples[:, :3], samples[:, 3:]))

    def _cut(self, channels: NDArray[np.float32]) -> Sequence[Window | Fault]:
        between, self._between = self._between[: len(channels)], self._between[len(channels) :]
        rows = np.concatenate([channels, between[:, np.newaxis].astype(np.float32)], axis=1)
        return [self._judged(last, window) for last, window in self._cutter.push(rows)]

    def _judged(self, last: int, rows: NDArray[np.float32]) -> Window | Fault:
        at = self._resampler.time_of(last)
        channels = np.ascontiguousarray(rows[:, :-1])
        between = float(rows[:, -1].mean(dtype=np.float64))
        magnitude = float(np.linalg.norm(channels[:, _FIRST_TOTAL:].astype(np.float64), axis=1).mean())
        fault = None
        if between * self.settings.sampling_hz > SPARSE:
            rate = f"{1.0 / between:.1f} readings a second, the model has {self.settings.sampling_hz:g}"
            fault = Fault("sparse", at, f"{rate}; no label")
        elif not PLAUSIBLE_G[0] <= magnitude <= PLAUSIBLE_G[1]:
            unit = self.settings.acceleration_unit
            fault = Fault("implausible", at, f"mean acceleration {magnitude:.2f} g; is the unit {unit}? no label")
        if fault is not None:
            self._begins = True
            return fault
        begins, self._begins = self._begins, False
        return Window(at, at - self.settings.window_steps // 2 / self.settings.sampling_hz, channels, begins)


def _three(values: ArrayLike, count: int, name: str) -> Samples:
    found = np.asarray(values, np.float64)
    if found.shape != (count, 3):
        raise UsageError(f"{name}: expected ({count}, 3) numbers as there are times, got shape {found.shape}; send all")
    return found
