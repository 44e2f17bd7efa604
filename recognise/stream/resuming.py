"""The text of a stream in the middle, from which it continues with the same bits. Pure.

The text goes through a client, so nothing in it is believed: `resumed` checks each part, and
refuses a state of other settings, of another model or of other labels.
"""

import base64
import binascii
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.data.filters import largest_values, takes_nine
from core.data.intake import LARGEST_TIME_SECONDS, InputFault
from core.data.signals import CAUSAL, UNFILTERED
from recognise.stream.parts import (
    LARGEST_NUMBER,
    MOST_BYTES,
    Part,
    UnpackedState,
    number,
    packed,
    refuse,
)
from recognise.stream.settings import FAULTS, Settings
from recognise.stream.smoothing import Smoothing
from recognise.stream.stream import Stream, Window

MOST_TEXT = (MOST_BYTES + 2) // 3 * 4
"""Characters of a state."""
MOST_WAITING = 64
"""Windows and faults that had no answer."""
_LONGEST_DETAIL = 300


@dataclass(frozen=True)
class StreamState:
    """A stream in the middle, its votes, and its windows and faults without an answer."""

    stream: Stream
    smoothing: Smoothing
    waiting: Sequence[Window | InputFault] = ()


def text_of(resumed: StreamState, model: str, labels: Sequence[str]) -> str | None:
    """Return the state as a text for `resumed`, or None where it is too large."""
    windows = [output.channels for output in resumed.waiting if isinstance(output, Window)]
    state: dict[str, Part] = {
        **_identity(resumed.stream.settings, model, labels),
        **resumed.stream.state(),
        **resumed.smoothing.state(),
        "waiting": [_listed(output) for output in resumed.waiting],
    }
    if windows:
        state["windows"] = np.stack(windows)
    content = packed(state)
    if content is None or len(resumed.waiting) > MOST_WAITING:
        return None
    return base64.b64encode(content).decode()


def begun(settings: Settings, labels: Sequence[str]) -> StreamState:
    """Return a stream at its begin."""
    return StreamState(Stream(settings), Smoothing(settings, labels))


def resumed(text: str, settings: Settings, model: str, labels: Sequence[str]) -> StreamState:
    """Return the stream that continues.

    Raises UsageError, in one line, for what is no state of this model and settings.
    """
    try:
        state = UnpackedState(base64.b64decode(text.encode(), validate=True))
    except (binascii.Error, ValueError):
        raise refuse("base64", text) from None
    for name, expected in _identity(settings, model, labels).items():
        if state.value(name) != expected:
            raise refuse(f"a state with {name} {expected!s:.60}", state.value(name))
    continued = begun(settings, labels)
    continued.stream.resume(state)
    continued.smoothing.resume(state)
    return StreamState(continued.stream, continued.smoothing, _waiting(state, settings))


def _identity(settings: Settings, model: str, labels: Sequence[str]) -> dict[str, Part]:
    """Return what both sides must agree on, as JSON has it."""
    filters = CAUSAL if takes_nine(settings.signals) else UNFILTERED
    return {
        "model": model,
        "labels": list(labels),
        "filters": filters,
        **asdict(settings),
        "signals": settings.signals.known_facts(),
        "given": settings.readings.known_facts(),
        "sampling_hz": settings.sampling_hz,
    }


def _listed(output: Window | InputFault) -> list[Any]:
    if isinstance(output, Window):
        return [output.at, output.centre, output.begins]
    return [output.kind, output.at, output.detail]


def _waiting(state: UnpackedState, settings: Settings) -> tuple[Window | InputFault, ...]:
    listed = state.value("waiting")
    if not isinstance(listed, list) or len(listed) > MOST_WAITING:
        raise refuse(f"at most {MOST_WAITING} windows and faults", listed)
    if any(not isinstance(entry, list) or len(entry) != 3 for entry in listed):
        raise refuse("windows and faults of three parts", listed)
    count = sum(not isinstance(entry[0], str) for entry in listed)
    shape = count, settings.window_steps, len(settings.signals.channels)
    most = max(float(largest_values(settings.signals).max()), LARGEST_NUMBER)
    windows = iter(state.array("windows", np.float32, shape, most) if count else ())
    return tuple(
        _fault(*entry) if isinstance(entry[0], str) else _window(entry, next(windows))
        for entry in listed
    )


def _fault(kind: Any, at: Any, detail: Any) -> InputFault:
    if (
        kind not in FAULTS
        or not isinstance(detail, str)
        or len(detail) > _LONGEST_DETAIL
        or not detail.isprintable()
    ):
        raise refuse("a fault of a known kind", (kind, detail))
    return InputFault(kind, number(at, LARGEST_TIME_SECONDS, "a fault's time"), detail)


def _window(listed: Sequence[Any], channels: NDArray[np.float32]) -> Window:
    at, centre = (number(time, LARGEST_TIME_SECONDS, "a window's time") for time in listed[:2])
    if not isinstance(listed[2], bool):
        raise refuse("a window that says whether it begins", listed[2])
    return Window(at, centre, channels, listed[2])
