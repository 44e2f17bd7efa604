"""Several consumers of one stream, and none of them can end the job."""

import pytest

from core.status.events import Advanced, Event, EventStream


class Heard:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def consume(self, event: Event) -> None:
        self.events.append(event)


class Broken(Heard):
    def consume(self, event: Event) -> None:
        super().consume(event)
        raise KeyError("a bug")


def test_one_that_fails_is_dropped_and_the_others_get_everything(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = Heard()
    broken = Broken()
    behind = Heard()
    stream = EventStream(before.consume, broken.consume)
    stream.add(behind.consume)
    both: list[Event] = [Advanced(1), Advanced(2)]
    for event in both:
        stream.emit(event)
    assert (before.events, broken.events, behind.events) == (both, both[:1], both)
    (line,) = caplog.messages
    assert line == "Broken failed and gets no more events"
