"""The two-way filters over a recording of any length, in blocks: memory is that of one block.

Filters that run backwards need the end of the recording first. But what is far away hardly counts:
the 0.3 Hz low-pass keeps less than 1e-20 of a step after a minute. So a block that is filtered with
a minute of readings on each side has the channels of the whole recording, to the rounding of
float32.
"""

import numpy as np
from numpy.typing import NDArray

from core.data.filters import (
    CHANNELS,
    SAMPLE_RATE_HZ,
    SHORTEST_RECORDING_STEPS,
    Samples,
    nine_channels,
)

MARGIN_STEPS = int(60 * SAMPLE_RATE_HZ)
BLOCK_STEPS = int(600 * SAMPLE_RATE_HZ)
_SENSORS = 6


class TwoWayInBlocks:
    """State: at most a block and two margins of readings.

    The same readings give the same bits in chunks of any length.

    The borders of the blocks are counted from the first reading.
    """

    def __init__(self) -> None:
        self._parts: list[Samples] = []
        self._held = 0
        self._before = 0
        """How many of the held readings have their channels already."""

    def push(self, acceleration: Samples, angular_velocity: Samples) -> NDArray[np.float32]:
        """Return the channels, float32 (steps, 9), that these readings complete.

        The readings are in g and rad/s, each (steps, 3), at 50 Hz.
        """
        self._parts.append(np.concatenate([acceleration, angular_velocity], axis=1))
        self._held += len(acceleration)
        found = []
        while self._held >= self._before + BLOCK_STEPS + MARGIN_STEPS:
            readings = self._joined()
            end = self._before + BLOCK_STEPS
            found.append(_channels(readings[: end + MARGIN_STEPS])[self._before : end])
            first = max(0, end - MARGIN_STEPS)
            self._parts = [readings[first:].copy()]
            self._held = self._held - first
            self._before = end - first
        if found:
            return np.concatenate(found)
        return _none()

    def end(self) -> NDArray[np.float32]:
        """Channels of all other readings, which are then forgotten.

        A recording too short for the filters has none.
        """
        if self._held < SHORTEST_RECORDING_STEPS:
            found = _none()
        else:
            found = _channels(self._joined())[self._before :]
        self._parts = []
        self._held = 0
        self._before = 0
        return found

    def _joined(self) -> Samples:
        if len(self._parts) != 1:
            self._parts = [np.concatenate(self._parts)]
        else:
            self._parts = self._parts
        return self._parts[0]


def _channels(readings: Samples) -> NDArray[np.float32]:
    return nine_channels(readings[:, : _SENSORS // 2], readings[:, _SENSORS // 2 :])


def _none() -> NDArray[np.float32]:
    return np.empty((0, len(CHANNELS)), np.float32)
