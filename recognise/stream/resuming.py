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
from recognise.stream.events import FAULTS
from recognise.stream.parts import (
    LARGEST_NUMBER,
    MOST_BYTES,
    Part,
    UnpackedState,
    number,
    packed,
    refuse,
)
from recognise.stream.settings import Settings
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
    windows = [one.channels for one in resumed.waiting if isinstance(one, Window)]
    parts: dict[str, Part] = {
        **_identity(resumed.stream.settings, model, labels),
        **resumed.stream.state(),
        **resumed.smoothing.state(),
        "waiting": [_listed(one) for one in resumed.waiting],
    }
    if windows:
        parts["windows"] = np.stack(windows)
    content = packed(parts)
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
        kept = UnpackedState(base64.b64decode(text.encode(), validate=True))
    except (binascii.Error, ValueError):
        raise refuse("base64", text) from None
    for name, wanted in _identity(settings, model, labels).items():
        if kept.value(name) != wanted:
            raise refuse(f"a state with {name} {wanted!s:.60}", kept.value(name))
    found = begun(settings, labels)
    found.stream.resume(kept)
    found.smoothing.resume(kept)
    return StreamState(found.stream, found.smoothing, _waiting(kept, settings))


def _identity(settings: Settings, model: str, labels: Sequence[str]) -> dict[str, Part]:
    """Return what both sides must agree on, as JSON has it."""
    filters = CAUSAL if takes_nine(settings.signals) else UNFILTERED
    said = {
        "signals": settings.signals.known_facts(),
        "given": settings.readings.known_facts(),
        "sampling_hz": settings.sampling_hz,
    }
    found = {"model": model, "labels": list(labels), "filters": filters, **asdict(settings)}
    return {**found, **said}


def _listed(one: Window | InputFault) -> list[Any]:
    if isinstance(one, Window):
        return [one.at, one.centre, one.begins]
    return [one.kind, one.at, one.detail]


def _waiting(kept: UnpackedState, settings: Settings) -> tuple[Window | InputFault, ...]:
    listed = kept.value("waiting")
    if not isinstance(listed, list) or len(listed) > MOST_WAITING:
        raise refuse(f"at most {MOST_WAITING} windows and faults", listed)
    if any(not isinstance(one, list) or len(one) != 3 for one in listed):
        raise refuse("windows and faults of three parts", listed)
    count = sum(not isinstance(one[0], str) for one in listed)
    shape = count, settings.window_steps, len(settings.signals.channels)
    most = max(float(largest_values(settings.signals).max()), LARGEST_NUMBER)
    windows = iter(kept.array("windows", np.float32, shape, most) if count else ())
    return tuple(
        _fault(*one) if isinstance(one[0], str) else _window(one, next(windows)) for one in listed
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
    at, centre = (number(one, LARGEST_TIME_SECONDS, "a window's time") for one in listed[:2])
    if not isinstance(listed[2], bool):
        raise refuse("a window that says whether it begins", listed[2])
    return Window(at, centre, channels, listed[2])
