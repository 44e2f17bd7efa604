"""What a stream says: labels, changes of the label, and faults of its input."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from core.data.intake import FaultKind, InputFault

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
