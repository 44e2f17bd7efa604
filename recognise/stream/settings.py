"""The settings of one stream, given before its first reading."""

import math
from dataclasses import dataclass

from cluster.data.filters import SAMPLE_RATE_HZ
from cluster.errors import UsageError

STANDARD_GRAVITY = 9.80665
"""m/s^2 of 1 g. Source: https://en.wikipedia.org/wiki/Standard_gravity."""

ACCELERATION_UNITS = {"g": 1.0, "m/s2": 1.0 / STANDARD_GRAVITY}
"""Units of acceleration, each with its factor to g."""
ROTATION_UNITS = {"rad/s": 1.0, "deg/s": math.pi / 180.0}
"""Units of angular velocity, each with its factor to rad/s."""

MOST_WINDOW_STEPS, MOST_HOP, MOST_VOTES = 4096, 4096, 64
LONGEST_GAP_SECONDS = 0.25
"""Longer than the jitter of phones: within a recording of HHAR the longest delay is 69 ms (cluster/data/hhar.py)."""


@dataclass(frozen=True)
class Settings:
    """One stream's settings, checked.

    window_steps: samples of a window; hop: samples from one window's end to the next one's; votes, of: a label needs
    `votes` of the last `of` windows; least_confidence: a window below it votes for no label; source_hz: the sensor's
    rate where it is known: readings faster than the model's rate are low-passed first; longest_gap_seconds: a longer
    pause ends the windows before it.
    """

    window_steps: int = 128
    hop: int = 64
    votes: int = 2
    of: int = 3
    least_confidence: float = 0.0
    acceleration_unit: str = "g"
    rotation_unit: str = "rad/s"
    source_hz: float | None = None
    longest_gap_seconds: float = LONGEST_GAP_SECONDS
    sampling_hz: float = SAMPLE_RATE_HZ

    def __post_init__(self) -> None:
        """Raises UsageError naming the setting."""
        for name, value, most in (
            ("window_steps", self.window_steps, MOST_WINDOW_STEPS),
            ("hop", self.hop, MOST_HOP),
            ("of", self.of, MOST_VOTES),
            ("votes", self.votes, self.of),
        ):
            if not 1 <= value <= most:
                raise UsageError(f"{name}: expected 1 to {most}, got {value}; correct it")
        if 2 * self.votes <= self.of:
            raise UsageError(
                f"votes: expected more than half of the last {self.of} windows, got {self.votes}; otherwise two labels "
                f"can win at once"
            )
        for name, unit, units in (
            ("acceleration_unit", self.acceleration_unit, ACCELERATION_UNITS),
            ("rotation_unit", self.rotation_unit, ROTATION_UNITS),
        ):
            if unit not in units:
                raise UsageError(f"{name}: expected {' or '.join(units)}, got {unit!r:.40}; correct it")
        if not 0.0 <= self.least_confidence < 1.0:
            raise UsageError(f"least_confidence: expected 0 to below 1, got {self.least_confidence}; correct it")
        if not 0.05 <= self.longest_gap_seconds <= 10.0:
            raise UsageError(f"longest_gap_seconds: expected 0.05 to 10, got {self.longest_gap_seconds}; correct it")
        if self.source_hz is not None and not 1.0 <= self.source_hz <= 10_000.0:
            raise UsageError(f"source_hz: expected 1 to 10000, got {self.source_hz}; correct it")
        if self.sampling_hz != SAMPLE_RATE_HZ:
            raise UsageError(
                f"sampling_hz: the filters are made for {SAMPLE_RATE_HZ:g} Hz, the model has {self.sampling_hz:g}; "
                f"give it windows that are cut already"
            )
