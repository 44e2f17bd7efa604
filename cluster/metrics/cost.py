"""What measuring and exporting cost this process, in CPU seconds of the threads that do it."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from cluster.metrics.identity import Identity


class Cost(Collector):
    """Adds up CPU time: of pieces of code (`spent`) and of threads that do nothing else (`so_far`)."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._lock = threading.Lock()
        self._pieces = 0.0
        self._threads: dict[str, float] = {}

    @contextmanager
    def spent(self) -> Iterator[None]:
        """Count what the calling thread computes inside."""
        begin = time.thread_time()
        try:
            yield
        finally:
            self.add(time.thread_time() - begin)

    def add(self, seconds: float) -> None:
        """So much more was computed."""
        with self._lock:
            self._pieces += seconds

    def so_far(self, thread: str) -> None:
        """The calling thread does nothing but this: its whole time counts, under this name."""
        self._threads[thread] = time.thread_time()

    def seconds(self) -> float:
        """All of it until now."""
        with self._lock:
            return self._pieces + sum(self._threads.values())

    def collect(self) -> Iterator[Metric]:
        """The one counter."""
        yield self._identity.counter("exporter_cpu_seconds_total", self.seconds())
