"""The channels of the windows: those that a format describes, or the nine of HAPT made of them."""

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from core.data.described.description import UNITS, ChannelForm, RecordingFormat
from core.data.filters import (
    NINE_CHANNELS,
    SAMPLE_RATE_HZ,
    SHORTEST_RECORDING_STEPS,
    channels_by,
)
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


@dataclass(frozen=True)
class MadeChannels:
    """What the windows hold.

    nine: where the total acceleration and the rotation begin among the described channels, whose
    nine are made; None where the described ones are kept.
    """

    signals: Signals
    nine: tuple[int, int] | None = None

    @property
    def kept_as(self) -> type[np.floating]:
        """The type of samples until they are whole."""
        return np.float32 if self.nine is None else np.float64

    def of(self, samples: NDArray[np.floating]) -> NDArray[np.float32] | None:
        """Return the channels of a stretch, float32 (n, channels); None of one too short."""
        if self.nine is None:
            return samples.astype(np.float32, copy=False)
        if len(samples) < SHORTEST_RECORDING_STEPS:
            return None
        acceleration, rotation = (
            samples[:, begin : begin + 3].astype(np.float64) for begin in self.nine
        )
        return channels_by(str(self.signals.filters), acceleration, rotation)


def made_channels(path: Path, form: RecordingFormat, cutting: Cutting) -> MadeChannels:
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
        return MadeChannels(described)
    acceleration, rotation = first_vectors(path, form, "leave jobs.train.data.nine_channels out")
    if cutting.sampling_hz not in (None, SAMPLE_RATE_HZ):
        raise DataError(
            f"{path}: jobs.train.data.sampling_hz: the nine channels have {SAMPLE_RATE_HZ:g} Hz,"
            f" got {cutting.sampling_hz:g}; leave one of the two out"
        )
    signals = replace(NINE_CHANNELS, filters=cutting.filters, format_sha256=digest)
    names = form.channel_names
    begins = names.index(acceleration.channels[0]), names.index(rotation.channels[0])
    return MadeChannels(signals, begins)


def signals_of(form: RecordingFormat) -> Signals:
    """Return what the format says of its channels, in the units of windows."""
    kinds = {channel.name: _kind(channel) for channel in form.shown}
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
        missing = "a rotation" if accelerations else "an acceleration with gravity"
        raise DataError(
            f"{path}: the nine channels need three axes of an acceleration with gravity and of a"
            f" rotation, the format has not {missing}; record with that sensor, or {remedy}"
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
