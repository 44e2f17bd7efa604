"""The stream core: readings with times in, windows of the model's channels and faults out.

It has no clock: time is what the readings say. Its memory is one window of rows, the filters' state
and one reading.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.data.filters import FILTER_STATE, CausalFilters, FilterState, largest_values, takes_nine
from core.data.intake import (
    FASTEST_HZ,
    LARGEST_TIME_SECONDS,
    SPARSE,
    GoodReadings,
    InputFault,
    Intake,
    Resampler,
    Samples,
    unit_hint,
)
from core.ground.errors import UsageError
from recognise.plausibility import gravity_problem, window_problem
from recognise.stream.parts import LARGEST_NUMBER, Part, UnpackedState, number, refuse
from recognise.stream.settings import Settings


class ResumableResampler(Resampler):
    """A resampler whose state can be kept."""

    def state(self) -> dict[str, Part]:
        """Return what `resume` needs."""
        state: dict[str, Part] = {"grid_begin": self._begin, "steps": self._next}
        if self._last is not None:
            state |= {"time": self._last[0], "reading": self._last[1]}
        if self._state is None:
            return state
        return {**state, "aliases": self._state}

    def resume(self, state: UnpackedState, inputs: int, largest: float) -> None:
        """Continue where another one of the same rates had this state. Raises UsageError.

        inputs: the values of a reading; largest: what their size may be.
        """
        begin = number(state.value("grid_begin"), LARGEST_TIME_SECONDS, "grid_begin")
        steps = state.count("steps")
        if not state.has("time"):
            if begin or steps:
                raise refuse("no grid before the first reading", (begin, steps))
            return
        time = state.array("time", np.float64, (1,), LARGEST_TIME_SECONDS)
        # A grid far behind the reading would become as many samples at once.
        if not abs(begin + steps / self._rate - float(time[0])) <= 2 / self._rate or not steps:
            raise refuse(
                "the grid's next step beside the last reading", (begin, steps, float(time[0]))
            )
        largest = max(largest, LARGEST_NUMBER)
        values = state.array("reading", np.float64, (1, inputs), largest)
        if self._sections is not None:
            shape = (len(self._sections), 2, inputs)
            self._state = state.array("aliases", np.float64, shape, largest)
        self._begin = begin
        self._next = steps
        self._last = (time, values)


MOST_READINGS = 4096
"""Readings of one call at most, which bounds what it may return."""


@dataclass(frozen=True)
class Window:
    """One window of samples.

    at, centre: seconds of its last sample and of its middle; channels: float32 (window_steps,
    channels); begins: the first one since the windows restarted, so no vote before it counts.
    """

    at: float
    centre: float
    channels: NDArray[np.float32]
    begins: bool


class Cutter:
    """Windows with a hop, cut from rows as they come; at most one window of rows is kept.

    State: the rows that a later window needs, and the number of the first of them.
    """

    def __init__(self, window_steps: int, hop: int, columns: int) -> None:
        self._steps = window_steps
        self._hop = hop
        self._rest: NDArray[np.float32] = np.empty((0, columns), np.float32)
        self._first = 0
        self._begin = 0

    @property
    def due(self) -> int:
        """The number of the row that makes the next window whole."""
        return self._begin + self._steps - 1

    @property
    def rows(self) -> int:
        """The number of rows that came."""
        return self._first + len(self._rest)

    def state(self) -> dict[str, Part]:
        """Return what `resume` needs."""
        return {"rows": self._rest, "first": self._first, "begin": self._begin}

    def resume(self, state: UnpackedState, largest_value: float) -> None:
        """Continue where another one of the same window and hop had this state.

        Raises UsageError.
        """
        shape = (None, self._rest.shape[1])
        rest = state.array("rows", np.float32, shape, max(largest_value, LARGEST_NUMBER))
        first = state.count("first")
        begin = state.count("begin")
        # Rows are kept from the begin of the next window on; with a hop beyond the window it may
        # lie ahead.
        waits = len(rest) == 0 and 0 < begin - first <= self._hop
        if not (waits or (begin == first and len(rest) < self._steps)):
            raise refuse("rows of less than a window, from its begin on", (len(rest), first, begin))
        self._rest = rest
        self._first = first
        self._begin = begin

    def push(self, rows: NDArray[np.float32]) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """Return each window that ends in these rows, after the number of its last row.

        A window is float32 (window_steps, columns).
        """
        available_rows = np.concatenate([self._rest, rows])
        windows = []
        while self._begin + self._steps <= self._first + len(available_rows):
            start = self._begin - self._first
            windows.append(
                (self._begin + self._steps - 1, available_rows[start : start + self._steps].copy())
            )
            self._begin += self._hop
        past = min(self._begin - self._first, len(available_rows))
        self._rest = available_rows[past:].copy()
        self._first += past
        return iter(windows)


class Stream:
    """One stream of readings.

    The same readings give the same windows and faults, in chunks of any length.
    """

    def __init__(self, settings: Settings) -> None:
        """Each stretch without a break has causal filters of its own.

        Channels that a model takes as they are have none.
        """
        self.settings = settings
        self._filters: CausalFilters | None = None
        self._mapping = settings.input_mapping
        self._largest = largest_values(settings.signals)
        self._intake = Intake(settings.longest_gap_seconds, self._largest)
        self._anew()

    def push_values(self, seconds: Samples, values: Samples) -> Sequence[Window | InputFault]:
        """Return what follows from readings of the channels of `settings.readings`, in order.

        seconds: (n,); values: (n, channels). Raises UsageError for other shapes, or more readings
        than `MOST_READINGS`.
        """
        width = len(self.settings.readings.channels)
        if values.shape[1:] != (width,):
            raise UsageError(
                f"values: expected {width} for each time, got shape {values.shape}; send all"
            )
        if seconds.ndim != 1 or len(seconds) > MOST_READINGS:
            raise UsageError(
                f"times: expected up to {MOST_READINGS} numbers, got shape {seconds.shape}; send"
                " fewer"
            )
        outputs: list[Window | InputFault] = []
        for item in self._intake.take(seconds, self._mapping.applied_to(values)):
            if isinstance(item, InputFault):
                outputs.append(item)
            else:
                outputs += self._of(item)
        return outputs

    @property
    def due(self) -> float:
        """The time, as the readings have it, of the sample that completes the next window.

        It is -inf before the first reading. All readings up to it, pushed at once, cost less than
        in small chunks and give the same.
        """
        if self._resampler.began:
            return self._resampler.time_of(self._cutter.due)
        return -math.inf

    @property
    def last(self) -> float | None:
        """Seconds of the last good reading; None before the first."""
        return self._intake.last

    def state(self) -> dict[str, Part]:
        """Return what `resume` needs: all that later windows depend on."""
        state = {**self._resampler.state(), **self._cutter.state(), "begins": self._begins}
        if self._filters is None:
            return state
        filters = self._filters.state
        if filters is not None:
            for name, part in filters._asdict().items():
                state[f"filter_{name}"] = part
        return state

    def resume(self, state: UnpackedState) -> None:
        """Continue a new stream where another one of the same settings had this state.

        Raises UsageError.
        """
        most = float(self._largest.max())
        self._resampler.resume(state, len(self._largest), most)
        self._cutter.resume(state, most)
        if self._cutter.rows != self._resampler.steps:
            raise refuse(f"a row for each of {self._resampler.steps} samples", self._cutter.rows)
        self._begins = state.flag("begins")
        last = self._resampler.last
        self._intake.resume(last, is_alone=last == self._resampler.time_of(0))
        if self._resampler.began and self._filters is not None:
            filter_state = {
                name: state.array(f"filter_{name}", np.float64, shape)
                for name, shape in FILTER_STATE.items()
            }
            self._filters = CausalFilters(FilterState(**filter_state))

    def _anew(self) -> None:
        settings = self.settings
        self._resampler = ResumableResampler(settings.sampling_hz, settings.source_hz)
        if takes_nine(settings.signals):
            self._filters = CausalFilters()
        self._between: Samples = np.empty(0)
        # The last column is the seconds between two readings: from it follows how many readings a
        # window has.
        columns = len(settings.signals.channels) + 1
        self._cutter = Cutter(settings.window_steps, settings.hop, columns)
        self._begins = True

    def _of(self, run: GoodReadings) -> Sequence[Window | InputFault]:
        if run.begins:
            self._anew()
        samples, between = self._resampler.push(run.times, run.values)
        self._between = np.concatenate([self._between, between])
        if self._filters is None:
            return self._cut(samples.astype(np.float32))
        return self._cut(self._filters.push(samples[:, :3], samples[:, 3:]))

    def _cut(self, channels: NDArray[np.float32]) -> Sequence[Window | InputFault]:
        between = self._between[: len(channels)]
        self._between = self._between[len(channels) :]
        rows = np.concatenate([channels, between[:, np.newaxis].astype(np.float32)], axis=1)
        return [self._judged(last, window) for last, window in self._cutter.push(rows)]

    def _judged(self, last: int, rows: NDArray[np.float32]) -> Window | InputFault:
        at = self._resampler.time_of(last)
        channels = np.ascontiguousarray(rows[:, :-1])
        step = float(rows[:, -1].mean(dtype=np.float64))
        fault = self._fault(at, channels, step)
        if fault is not None:
            self._begins = True
            return fault
        begins = self._begins
        self._begins = False
        half = self.settings.window_steps // 2 / self.settings.sampling_hz
        return Window(at, at - half, channels, begins)

    def _fault(self, at: float, channels: NDArray[np.float32], step: float) -> InputFault | None:
        """Return the fault of a window whose readings are `step` seconds apart, or None."""
        settings = self.settings
        if step * settings.sampling_hz > SPARSE:
            rate = f"{1.0 / step:.1f} readings a second, the model has {settings.sampling_hz:g}"
            return InputFault("sparse", at, f"{rate}; no label")
        if step * FASTEST_HZ < 1.0:
            rate = f"{1.0 / step:.0f} readings a second; {unit_hint(step)}"
            return InputFault("implausible", at, f"{rate}; no label")
        problem = window_problem(channels, settings.signals)
        problem = problem or gravity_problem(channels, settings.signals)
        if problem is None:
            return None
        units = dict.fromkeys(settings.readings.units)
        reading_units = f"the readings came as {' and '.join(units)}"
        return InputFault("implausible", at, f"{problem} ({reading_units}; no label)")
