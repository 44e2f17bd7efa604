"""Readings of one session become samples of one rate, each with its label.

The channels are those that a format describes, or the nine of HAPT made of them. Pauses, doubled,
late and backward times are what a live stream takes them for; each is counted. Rows wait in memory
while they are few, in a temporary file without a name then.
"""

import hashlib
import json
import os
import tempfile
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from core.data.arrays import AnyArray, Labels, Singles
from core.data.described.column_looks import DOUBLED, doubled
from core.data.described.description import UNITS, ChannelForm, RecordingFormat
from core.data.filters import (
    NINE_CHANNELS,
    SAMPLE_RATE_HZ,
    SHORTEST_RECORDING_STEPS,
    channels_by,
)
from core.data.intake import SPARSE, GoodReadings, InputFault, Intake, Resampler
from core.data.recordings import Cutting
from core.data.signals import (
    ACCELERATION,
    CAUSAL,
    KIND_UNITS,
    LINEAR,
    ROTATION,
    UNFILTERED,
    Sensor,
    Signals,
)
from core.ground.errors import DataError
from core.ground.plausible import UNITS_OF_TIME, times_problem


@dataclass(frozen=True)
class WindowChannels:
    """What the windows hold.

    nine: where the total acceleration and the rotation begin among the described channels, whose
    nine are made; None where the described ones are kept.
    """

    signals: Signals
    nine: tuple[int, int] | None = None

    def converted(self, samples: NDArray[np.floating]) -> Singles | None:
        """Return the channels of a stretch, float32 (n, channels); None of one too short."""
        if self.nine is None:
            return samples.astype(np.float32, copy=False)
        if len(samples) < SHORTEST_RECORDING_STEPS:
            return None
        acceleration, rotation = (
            samples[:, begin : begin + 3].astype(np.float64) for begin in self.nine
        )
        return channels_by(str(self.signals.filters), acceleration, rotation)


def channels_of_windows(path: Path, form: RecordingFormat, cutting: Cutting) -> WindowChannels:
    """Return what the windows of these settings hold. Raises DataError."""
    written = json.dumps(cutting.format, sort_keys=True).encode()
    digest = hashlib.sha256(written).hexdigest()
    if form.as_recorded and (cutting.nine_channels or cutting.sampling_hz is not None):
        raise DataError(
            f"{path}: as_recorded: readings as they are have no rate, got sampling_hz or"
            " nine_channels; leave these out, or take a format without as_recorded"
        )
    if not cutting.nine_channels:
        if cutting.filters == CAUSAL:
            raise DataError(
                f"{path}: jobs.train.data.filters: described channels are not filtered, so {CAUSAL}"
                " would change nothing; leave it out, or set nine_channels"
            )
        described = replace(
            signals_of(form),
            sampling_hz=None if form.as_recorded else cutting.sampling_hz or form.time.hertz,
            filters=UNFILTERED,
            format_sha256=digest,
        )
        return WindowChannels(described)
    acceleration, rotation = first_vectors(path, form, "leave jobs.train.data.nine_channels out")
    if cutting.sampling_hz not in (None, SAMPLE_RATE_HZ):
        raise DataError(
            f"{path}: jobs.train.data.sampling_hz: the nine channels have {SAMPLE_RATE_HZ:g} Hz,"
            f" got {cutting.sampling_hz:g}; leave one of the two out"
        )
    signals = replace(NINE_CHANNELS, filters=cutting.filters, format_sha256=digest)
    names = form.channel_names
    begins = names.index(acceleration.channels[0]), names.index(rotation.channels[0])
    return WindowChannels(signals, begins)


def signals_of(form: RecordingFormat) -> Signals:
    """Return what the format says of its channels, in the units of windows."""
    kinds = {channel.name: _kind(channel) for channel in form.in_windows}
    sensors = tuple(Sensor(name, kind) for name, kind in kinds.items() if kind is not None)
    return Signals(form.channel_names, form.units, sensors=sensors)


def first_vectors(path: Path, form: RecordingFormat, remedy: str) -> tuple[Sensor, Sensor]:
    """Return the first acceleration with gravity and the first rotation of a format.

    Raises DataError, with the remedy, for a format without one of them.
    """
    sensors = signals_of(form).sensors
    accelerations = [sensor for sensor in sensors if sensor.kind == ACCELERATION]
    rotations = [sensor for sensor in sensors if sensor.kind == ROTATION]
    if not accelerations or not rotations:
        if accelerations:
            missing = "a rotation"
        else:
            missing = "an acceleration with gravity"
        raise DataError(
            f"{path}: the nine channels need three axes of an acceleration with gravity and of a"
            f" rotation, the format lacks {missing}; record with that sensor, or {remedy}"
        )
    return accelerations[0], rotations[0]


def _kind(channel: ChannelForm) -> str | None:
    """Return what three axes measure; None for a channel alone, or without a known unit."""
    unit = UNITS[channel.unit][0]
    if len(channel.names) == 1:
        return None
    if unit == "g" and not channel.gravity:
        return LINEAR
    return next((kind for kind, kind_unit in KIND_UNITS.items() if kind_unit == unit), None)


IN_MEMORY_BYTES = 16 * 2**20
"""Bytes of rows; more go to the file."""
LARGE_FILES = "/var/tmp"
"""The folder for large files: /tmp may be memory."""


class Spool:
    """Arrays in the order in which they were given, each found by what `keep` returned for it."""

    def __init__(self) -> None:
        folder = os.environ.get("TMPDIR", LARGE_FILES)
        self._folder = folder if os.access(folder, os.W_OK) else tempfile.gettempdir()
        self._file = tempfile.SpooledTemporaryFile(IN_MEMORY_BYTES, dir=self._folder)  # noqa: SIM115
        weakref.finalize(self, self._file.close)

    def keep(self, rows: AnyArray) -> int:
        """Keep an array of at least one dimension. Raises DataError for a full disk."""
        try:
            begin = self._file.seek(0, os.SEEK_END)
            np.save(self._file, rows, allow_pickle=False)
            self._file.flush()
        except OSError as problem:
            raise DataError(
                f"{self._folder}: cannot keep the samples of these recordings"
                f" ({problem.strerror}); make room, or set TMPDIR to a folder with more"
            ) from None
        return begin

    def rows(self, begins: Sequence[int]) -> AnyArray:
        """Return arrays as one, along the first axis."""
        return np.concatenate([self._read(begin) for begin in begins])

    def _read(self, begin: int) -> AnyArray:
        self._file.seek(begin)
        rows: AnyArray = np.load(self._file, allow_pickle=False)
        return rows


LOOKED_AT = 4096
"""Readings from which the rate of a session is judged."""
NO_LABEL = -1
SEVERAL_AT_ONE_TIME = 0.5
SECONDS_OF_A_DOUBLE = 1e-6
"""A step above that between two doubles of seconds since 1970."""

Samples = NDArray[np.float64]


@dataclass(frozen=True)
class Stretch:
    """Samples without a break, and the label of each, (n,).

    wide: steps of the windows' rate between the readings around each, (n,).
    samples: reads the samples, float32 (n, channels).
    """

    labels: Labels
    wide: Singles
    samples: Callable[[], Singles]


@dataclass
class Series:
    """One session of one person, as it is read."""

    where: str
    form: RecordingFormat
    window_channels: WindowChannels
    spool: Spool
    faults: Counter[str] = field(default_factory=Counter)
    readings: int = 0
    _source_hz: float | None = None
    _doubled: int = 0
    _waiting: list[int] = field(default_factory=list)
    _stretches: list[list[int]] = field(default_factory=list)
    """Samples as the filters need them, with the fields of a `Stretch`."""
    _spans: list[tuple[float, float]] = field(default_factory=list)
    """The first and last time of what lies between two breaks."""
    _intake: Intake | None = None
    _resampler: Resampler | None = None
    _last: tuple[float, float] = (0.0, NO_LABEL)

    def __post_init__(self) -> None:
        """Take what the format says of this rate."""
        self._hertz = self.window_channels.signals.sampling_hz or 1.0
        self._longest_gap = self.form.longest_gap(self._hertz)
        kind = np.float32 if self.window_channels.nine is None else np.float64
        samples = ("samples", kind, (len(self.form.units),))
        self._fields = np.dtype([samples, ("label", np.int16), ("wide", np.float32)])

    def push(self, times: Samples, values: Samples, labels: Labels) -> None:
        """Take the next readings: seconds (n,), (n, channels) in the windows' units, and (n,).

        Raises DataError for times or a rate that no window can have.
        """
        self.readings += len(times)
        rows = np.concatenate([values, labels[:, np.newaxis].astype(np.float64)], axis=1)
        if self._intake is not None:
            self._add_samples(times, rows)
            return
        self._waiting.append(self.spool.keep(np.column_stack([times, rows])))
        if self.readings >= LOOKED_AT:
            self._begin()

    def end(self) -> Iterator[Stretch]:
        """Yield what the session became. Raises DataError."""
        if self._intake is None and self.readings:
            self._begin()
        self._refuse_doubled(self._doubled, self.readings)
        self._refuse_late()
        for blocks in self._stretches:
            rows = self.spool.rows(blocks)
            channels = self.window_channels.converted(rows["samples"])
            if channels is not None:
                samples = partial(self._samples, blocks)
                if self.window_channels.nine is not None:
                    samples = partial(self.spool.rows, [self.spool.keep(channels)])
                yield Stretch(rows["label"].copy(), rows["wide"].copy(), samples)
        self._stretches = []

    def _samples(self, blocks: Sequence[int]) -> Singles:
        samples: Singles = self.spool.rows(blocks)["samples"]
        return samples

    def _begin(self) -> None:
        waiting = self.spool.rows(self._waiting)
        self._waiting = []
        self._judge(waiting[:, 0], waiting[:, 1:])
        largest = np.array([*self.form.largest(), np.inf])
        self._intake = Intake(self._longest_gap, largest)
        self._add_samples(waiting[:, 0], waiting[:, 1:])

    def _refuse_doubled(self, count: int, readings: int) -> None:
        if count > DOUBLED * readings:
            raise DataError(
                f"{self.where}: {count} of {readings} readings have the time of the one before and"
                " other values; write time.spread: true if they were made one after the other,"
                " another column of times, or none and time.hertz"
            )

    def _refuse_late(self) -> None:
        """Raises DataError where parts would follow each other if they stood in another order."""
        spans = pairwise(sorted(self._spans))
        pauses = np.array([begin - end for (_, end), (begin, _) in spans])
        late = int((pauses <= self._longest_gap).sum())
        if late and (pauses > 0).all():
            raise DataError(
                f"{self.where}: its times go back; in order of time {late} of its parts would"
                " follow another without a pause, as parts do that came late; sort its readings by"
                " time"
            )

    def _judge(self, times: Samples, rows: Samples) -> None:
        """Find the session's rate. Raises DataError."""
        self._refuse_doubled(doubled(times, rows), len(times))
        is_same = (np.diff(times) == 0) & (np.diff(rows, axis=0) == 0).all(axis=1)
        steps = np.diff(times)[~is_same]
        rising = steps[steps > 0]
        if len(times) < 3:
            return
        if (steps < 0).sum() > len(steps) / 2:
            raise DataError(
                f"{self.where}: the newest reading is first; write the oldest first, else movements"
                " run backwards"
            )
        if len(rising) < SEVERAL_AT_ONE_TIME * len(steps):
            raise DataError(
                f"{self.where}: expected a time for each reading, {len(steps) - len(rising)} of"
                f" {len(steps)} have that of the one before or an older one; take another column of"
                " times, or none and time.hertz"
            )
        step = self._step(rising)
        if 1.0 / step < self._hertz / SPARSE:
            raise DataError(
                f"{self.where}: expected at least {self._hertz / SPARSE:.3g} readings a second for"
                f" windows of {self._hertz:g}, got {1.0 / step:.3g}; set"
                " jobs.train.data.sampling_hz to that or less, or leave the recording out"
            )
        self._source_hz = 1.0 / step

    def _step(self, rising: Samples) -> float:
        """Return the median of steps in seconds. Raises DataError if no sensor has it."""
        step = float(np.median(rising))
        unit = self.form.time.unit.replace("iso", "s")
        wrong = times_problem(step / UNITS_OF_TIME[unit], unit)
        if wrong is not None:
            raise DataError(f"{self.where}: {wrong} Correct time.unit")
        return step

    def _add_samples(self, times: Samples, rows: Samples) -> None:
        assert self._intake is not None
        self._doubled += doubled(times, rows)
        for item in self._intake.take(times, rows):
            if isinstance(item, InputFault):
                self.faults[item.kind] += 1
            else:
                self._of(item)

    def _of(self, run: GoodReadings) -> None:
        values = run.values[:, :-1]
        labels = run.values[:, -1]
        if run.begins or self._resampler is None:
            self._resampler = Resampler(self._hertz, self._source_hz)
            self._stretches.append([])
            self._spans.append((run.times[0], run.times[-1]))
            times = run.times
        else:
            self._spans[-1] = self._spans[-1][0], run.times[-1]
            times = np.concatenate([self._last[:1], run.times])
            labels = np.concatenate([self._last[1:], labels])
        self._last = float(times[-1]), float(labels[-1])
        before = self._resampler.steps
        samples, wide = self._resampler.push(run.times, values)
        steps = np.arange(before, self._resampler.steps)
        grid = self._resampler.latest_of(steps)
        sample_labels = labels[np.maximum(np.searchsorted(times, grid, side="right") - 1, 0)]
        rows = np.empty(len(samples), self._fields)
        rows["samples"] = samples
        rows["label"] = sample_labels
        rows["wide"] = wide * self._hertz
        self._stretches[-1].append(self.spool.keep(rows))


class RecordedSeries(Series):
    """Readings that stay as they are; a pause, or a step back as long, ends a stretch."""

    def _judge(self, times: Samples, rows: Samples) -> None:
        steps = np.diff(times)
        if (steps > 0).any():
            self._step(steps[steps > 0])

    def _add_samples(self, times: Samples, rows: Samples) -> None:
        readings = np.zeros(len(rows), self._fields)
        readings["samples"] = rows[:, :-1]
        readings["label"] = rows[:, -1]
        steps = np.diff(times, prepend=self._last[0] if self._stretches else times[0])
        ends = np.flatnonzero(np.abs(steps) > self._longest_gap + SECONDS_OF_A_DOUBLE)
        for number, part in enumerate(np.split(readings, ends)):
            if number or not self._stretches:
                self._stretches.append([])
            if len(part):
                self._stretches[-1].append(self.spool.keep(part))
        self._last = float(times[-1]), NO_LABEL
