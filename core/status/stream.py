"""From a job to the consumers of its events."""

import logging
from collections.abc import Iterable

from core.status.events import Consumer, Event

log = logging.getLogger(__name__)


class EventStream:
    """Hands each event to every consumer.

    A consumer that raises is dropped with a warning and ends no job.

    Consumers run in the thread that emits: the job's own, but for `FaultInjected`, which any thread
    may emit.
    """

    def __init__(self, *consumers: Consumer) -> None:
        self._consumers: Iterable[Consumer] = consumers

    def add(self, consumer: Consumer) -> None:
        """Give `consumer` all events from now on."""
        self._consumers = (*self._consumers, consumer)

    def emit(self, event: Event) -> None:
        """Report an event."""
        for consumer in self._consumers:
            try:
                consumer(event)
            except Exception:
                owner = getattr(consumer, "__self__", consumer)
                name = getattr(owner, "__name__", type(owner).__name__)
                log.warning("%s failed and gets no more events", name, exc_info=True)
                self._consumers = tuple(other for other in self._consumers if other != consumer)
