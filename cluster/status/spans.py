"""The timeline: which worker was in which state when. Pure."""

from dataclasses import replace

from cluster.status.view import SpanView

WORKING, AWAY, SUSPECTED = "working", "away", "suspected"
MOST_SPANS = 64
"""Of one worker. Of a worker that comes and goes more often, the shortest are left out."""

STATES = {
    "idle": WORKING, "busy": WORKING,
    "suspect": SUSPECTED, "slow": SUSPECTED, "fenced": SUSPECTED,
    "absent": AWAY, "joining": AWAY, "drained": AWAY,
}  # fmt: skip
"""By phase of membership."""


class Spans:
    """Those of every worker."""

    def __init__(self) -> None:
        self._closed: dict[str, list[SpanView]] = {}
        self._open: dict[str, SpanView] = {}

    def state(self, task: str, state: str, seconds: float) -> SpanView | None:
        """The task is in this state from now on; the span that ends with that, if one does."""
        before = self._open.get(task)
        if before is not None and before.state == state:
            return None
        self._open[task] = SpanView(task, state, seconds, None)
        return self.add(replace(before, end_seconds=seconds)) if before is not None else None

    def add(self, span: SpanView) -> SpanView | None:
        """One that has ended; None if it took no time."""
        assert span.end_seconds is not None
        if span.end_seconds <= span.begin_seconds:
            return None
        closed = self._closed.setdefault(span.task, [])
        closed.append(span)
        if len(closed) > MOST_SPANS:
            self._closed[span.task] = without_shortest(closed)
        return span

    def open(self, span: SpanView) -> None:
        """One that lasts."""
        self._open[span.task] = span

    def forget(self, *tasks: str) -> None:
        """What lasts of these, if anything does."""
        for task in tasks:
            self._open.pop(task, None)

    def end(self, seconds: float) -> list[SpanView]:
        """All end, with the run or with its coordinator."""
        ended = [self.add(replace(span, end_seconds=seconds)) for span in self._open.values()]
        self._open.clear()
        return [span for span in ended if span is not None]

    def closed(self) -> list[SpanView]:
        """Those that have ended."""
        return [span for spans in self._closed.values() for span in spans]

    def lasting(self) -> list[SpanView]:
        """Those that last."""
        return list(self._open.values())

    def all(self) -> tuple[SpanView, ...]:
        """By task in the order they came, then by time."""
        tasks = dict.fromkeys([*self._closed, *self._open])
        return tuple(
            span
            for task in tasks
            for span in [*self._closed.get(task, []), *([self._open[task]] if task in self._open else [])]
        )


def without_shortest(spans: list[SpanView]) -> list[SpanView]:
    """The spans without their shortest, whose time goes to the one before it; neighbours in one state become one."""
    lengths = [(span.end_seconds or span.begin_seconds) - span.begin_seconds for span in spans[1:]]
    place = 1 + min(range(len(lengths)), key=lengths.__getitem__)
    kept = [*spans[: place - 1], replace(spans[place - 1], end_seconds=spans[place].end_seconds), *spans[place + 1 :]]
    joined = kept[:1]
    for span in kept[1:]:
        last = joined[-1]
        if last.state == span.state and last.end_seconds == span.begin_seconds:
            joined[-1] = replace(last, end_seconds=span.end_seconds)
        else:
            joined.append(span)
    return joined
