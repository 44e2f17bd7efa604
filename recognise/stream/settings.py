"""The settings of one stream, given before its first reading, and the events that it yields."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from core.data.filters import (
    NINE_CHANNELS,
    SAMPLE_RATE_HZ,
    InputMapping,
    input_mapping,
    signals_of_device,
    takes_nine,
)
from core.data.intake import FaultKind, InputFault
from core.data.signals import ACCELERATION, ROTATION, Signals
from core.ground.errors import UsageError
from core.ground.plausible import ACCELERATION_UNITS, ROTATION_UNITS

MOST_WINDOW_STEPS = 4096
MOST_HOP = 4096
MOST_VOTES = 64
LONGEST_GAP_SECONDS = 0.25
"""Longer than the jitter of phones: within a recording of HHAR the longest delay is 69 ms
(core/data/formats/hhar-as-recorded.yaml)."""


@dataclass(frozen=True)
class Settings:
    """The checked settings of one stream.

    window_steps: samples of a window; hop: samples from one window's end to the next one's; votes,
    of: a label needs `votes` of the last `of` windows; least_confidence: a window below it votes
    for no label; source_hz: the sensor's rate where it is known: readings faster than the model's
    rate are low-passed first; longest_gap_seconds: a longer pause ends the windows before it;
    signals: the channels of the model; given: those of the readings, where they have names: else
    they are acceleration and rotation, in `acceleration_unit` and `rotation_unit`.
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
    signals: Signals = NINE_CHANNELS
    given: Signals | None = None

    @property
    def sampling_hz(self) -> float:
        """Samples a second of the model's windows."""
        assert self.signals.sampling_hz is not None
        return self.signals.sampling_hz

    @property
    def readings(self) -> Signals:
        """The channels of the readings, as they come. Raises UsageError."""
        if self.given is not None:
            return self.given
        units = (self.acceleration_unit, self.rotation_unit)
        return signals_of_device(self.signals, (ACCELERATION, ROTATION), units)

    @property
    def input_mapping(self) -> InputMapping:
        """How the model's inputs follow from the readings. Raises UsageError."""
        return input_mapping(self.readings, self.signals)

    def __post_init__(self) -> None:
        """Raise UsageError naming the setting."""
        for name, least, most in (
            ("window_steps", 1, MOST_WINDOW_STEPS),
            ("hop", 1, MOST_HOP),
            ("of", 1, MOST_VOTES),
            ("votes", 1, self.of),
            ("longest_gap_seconds", 0.05, 10.0),
            ("source_hz", 1.0, 10_000.0),
        ):
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise UsageError(f"{name}: expected {least:g} to {most:g}, got {value}; correct it")
        if 2 * self.votes <= self.of:
            raise UsageError(
                f"votes: expected more than half of the last {self.of} windows, got {self.votes};"
                " otherwise two labels can win at once"
            )
        for name, unit, units in (
            ("acceleration_unit", self.acceleration_unit, ACCELERATION_UNITS),
            ("rotation_unit", self.rotation_unit, ROTATION_UNITS),
        ):
            if unit not in units:
                raise UsageError(
                    f"{name}: expected {' or '.join(units)}, got {unit!r:.40}; correct it"
                )
        if not 0.0 <= self.least_confidence < 1.0:
            raise UsageError(
                f"least_confidence: expected 0 to below 1, got {self.least_confidence}; correct it"
            )
        if takes_nine(self.signals) and self.sampling_hz != SAMPLE_RATE_HZ:
            raise UsageError(
                f"signals: the filters are made for {SAMPLE_RATE_HZ:g} Hz, the model has"
                f" {self.sampling_hz:g}; give it windows that are cut already"
            )
        input_mapping(self.readings, self.signals)  # names what the readings lack


FAULTS: Mapping[FaultKind, str] = {
    "bad_value": (
        "a time or value that is no finite number of a sensible size; the reading is dropped"
    ),
    "doubled": "a second reading of the same time; it is dropped",
    "late": (
        "a reading older than the one before it, by no more than the longest gap; it is dropped"
    ),
    "gap": "a pause, or a clock that jumped ahead; filters, window and votes restart",
    "clock_jump": (
        "a clock that went back by more than the longest gap; filters, window and votes restart"
    ),
    "sparse": "a window of less than half of the model's rate; it gets no label, and votes restart",
    "implausible": (
        "a window of a wrong unit, without gravity or without a sensor; it gets no label, and votes"
        " restart"
    ),
}


@dataclass(frozen=True)
class Label:
    """The label after the newest window.

    at: seconds, the window's last sample; label: None while no label has enough votes; confidence:
    mean probability of the label over the windows that vote for it, of an undecided one the newest
    window's highest probability; latency_samples: from the centre of the oldest window that
    decides, to the last sample.
    """

    at: float
    label: str | None
    confidence: float
    latency_samples: int


@dataclass(frozen=True)
class Changed:
    """A change of the label.

    `at`: seconds, the centre of the first window that voted for the new one.
    """

    before: str | None
    after: str
    at: float


Event: TypeAlias = InputFault | Label | Changed


def as_json(event: Event) -> dict[str, Any]:
    """Return the event as JSON has it: `event` is `label`, `changed` or `fault`."""
    match event:
        case Changed():
            return {"event": "changed", "from": event.before, "to": event.after, "at": event.at}
        case Label():
            return {"event": "label", **asdict(event)}
        case InputFault():
            return {"event": "fault", **asdict(event)}
