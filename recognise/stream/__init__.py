"""A stream of readings becomes windows and labels: pure, without sockets and without a clock.

Other rooms use `Settings`, `Stream`, `Smoothing`, the events, and `StreamState` for a stream that
continues elsewhere.
"""

from core.data.intake import InputFault
from recognise.stream.resuming import StreamState, begun, resumed, text_of
from recognise.stream.settings import Changed, Event, Label, Settings, as_json
from recognise.stream.smoothing import Smoothing
from recognise.stream.stream import Stream, Window

__all__ = [
    "Changed",
    "Event",
    "InputFault",
    "Label",
    "Settings",
    "Smoothing",
    "Stream",
    "StreamState",
    "Window",
    "as_json",
    "begun",
    "resumed",
    "text_of",
]
