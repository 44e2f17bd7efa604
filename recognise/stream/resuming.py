"""A stream in the middle becomes a text, and a text becomes a stream that continues with the same bits. Pure.

The text goes through a client, so it is believed nothing: `resumed` looks at each part, and refuses a state of other
settings, of another model or of other labels.
"""

import base64
import binascii
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster.data.filters import CHANNELS
from cluster.data.recordings import CAUSAL
from recognise.stream.events import FAULTS, Fault
from recognise.stream.intake import LARGEST_TIME_SECONDS
from recognise.stream.parts import MOST_BYTES, Kept, Part, number, packed, refuse
from recognise.stream.settings import Settings
from recognise.stream.smoothing import Smoothing
from recognise.stream.stream import Stream, Window

MOST_TEXT = (MOST_BYTES + 2) // 3 * 4
"""Characters of a state."""
MOST_WAITING = 64
"""Windows and faults that had no answer."""
_LONGEST_DETAIL = 300


@dataclass(frozen=True)
class Resumed:
    """A stream in the middle, its votes, and the windows and faults that nothing was said about yet."""

    stream: Stream
    smoothing: Smoothing
    waiting: Sequence[Window | Fault] = ()


def text_of(resumed: Resumed, model: str, labels: Sequence[str]) -> str | None:
    """The state as a text for `resumed`; None where it is larger than a state may be."""
    windows = [one.channels for one in resumed.waiting if isinstance(one, Window)]
    parts: dict[str, Part] = {
        **_identity(resumed.stream.settings, model, labels),
        **resumed.stream.state(),
        **resumed.smoothing.state(),
        "waiting": [_listed(one) for one in resumed.waiting],
    }
    if windows:
        parts["windows"] = np.stack(windows)
    content = None if len(resumed.waiting) > MOST_WAITING else packed(parts)
    return None if content is None else base64.b64encode(content).decode()


def begun(settings: Settings, labels: Sequence[str]) -> Resumed:
    """A stream at its begin."""
    return Resumed(Stream(settings), Smoothing(settings, labels))


def resumed(text: str, settings: Settings, model: str, labels: Sequence[str]) -> Resumed:
    """The stream that continues. Raises UsageError, in one line, for what is no state of this model and settings."""
    try:
        kept = Kept(base64.b64decode(text.encode(), validate=True))
    except (binascii.Error, ValueError):
        raise refuse("base64", text) from None
    for name, wanted in _identity(settings, model, labels).items():
        if kept.value(name) != wanted:
            raise refuse(f"a state with {name} {wanted!s:.60}", kept.value(name))
    found = begun(settings, labels)
    found.stream.resume(kept)
    found.smoothing.resume(kept)
    return Resumed(found.stream, found.smoothing, _waiting(kept, settings))


def _identity(settings: Settings, model: str, labels: Sequence[str]) -> dict[str, Part]:
    """What both sides must agree on."""
    return {"model": model, "labels": list(labels), "filters": CAUSAL, **asdict(settings)}


def _listed(one: Window | Fault) -> list[Any]:
    return [one.at, one.centre, one.begins] if isinstance(one, Window) else [one.kind, one.at, one.detail]


def _waiting(kept: Kept, settings: Settings) -> tuple[Window | Fault, ...]:
    listed = kept.value("waiting")
    if not isinstance(listed, list) or len(listed) > MOST_WAITING:
        raise refuse(f"at most {MOST_WAITING} windows and faults", listed)
    if any(not isinstance(one, list) or len(one) != 3 for one in listed):
        raise refuse("windows and faults of three parts", listed)
    count = sum(not isinstance(one[0], str) for one in listed)
    shape = count, settings.window_steps, len(CHANNELS)
    windows = iter(kept.array("windows", np.float32, shape) if count else ())
    return tuple(_fault(*one) if isinstance(one[0], str) else _window(one, next(windows)) for one in listed)


def _fault(kind: Any, at: Any, detail: Any) -> Fault:
    if kind not in FAULTS or not isinstance(detail, str) or len(detail) > _LONGEST_DETAIL or not detail.isprintable():
        raise refuse("a fault of a known kind", (kind, detail))
    return Fault(kind, number(at, LARGEST_TIME_SECONDS, "a fault's time"), detail)


def _window(listed: Sequence[Any], channels: NDArray[np.float32]) -> Window:
    at, centre = (number(one, LARGEST_TIME_SECONDS, "a window's time") for one in listed[:2])
    if not isinstance(listed[2], bool):
        raise refuse("a window that says whether it begins", listed[2])
    return Window(at, centre, channels, listed[2])
