"""A stream of readings becomes windows, and windows become labels: pure, without sockets and without a clock.

The room's doors are `Settings`, `Stream`, `Smoothing`, the events, and `Resumed` for a stream that continues elsewhere.
"""

from recognise.stream.events import Changed, Event, Fault, Label, as_json
from recognise.stream.resuming import Resumed, begun, resumed, text_of
from recognise.stream.settings import Settings
from recognise.stream.smoothing import Smoothing
from recognise.stream.stream import Stream, Window

__all__ = [
    "Changed",
    "Event",
    "Fault",
    "Label",
    "Resumed",
    "Settings",
    "Smoothing",
    "Stream",
    "Window",
    "as_json",
    "begun",
    "resumed",
    "text_of",
]
