"""What this process uses of its node, and what measuring it costs."""

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from core.metrics.instruments import Identity
from core.metrics.processor import usable_cores

STATUS = Path("/proc/self/status")
KIBIBYTE = 1024
FIELD = re.compile(r"^(RssAnon|RssFile|VmSwap):\s+(\d+) kB$", re.MULTILINE)
THREADS = re.compile(r"^Threads:\s+(\d+)$", re.MULTILINE)


def memory_bytes(status: str) -> dict[str, int]:
    """Return RssAnon, RssFile and VmSwap, in bytes.

    They are in the text of a /proc/PID/status (Linux 4.5 and newer).
    """
    return {name: int(kibibytes) * KIBIBYTE for name, kibibytes in FIELD.findall(status)}


class ProcessCollector(Collector):
    """Memory, CPU time, threads and start time of this process.

    Anonymous memory is what counts on a 1 GB Pi: file-backed pages are the wheel's libraries, which
    the kernel can drop and read again.
    """

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._start_seconds = psutil.Process().create_time()

    def collect(self) -> Iterator[Metric]:
        """Yield one sample of each figure."""
        sample = self._identity.sample
        status = STATUS.read_text()
        memory = memory_bytes(status)
        threads = THREADS.search(status)
        yield sample("process_anonymous_bytes", memory["RssAnon"])
        yield sample("process_file_backed_bytes", memory["RssFile"])
        yield sample("process_swap_bytes", memory["VmSwap"])
        yield sample("process_cpu_seconds_total", time.process_time())
        yield sample("process_cores", usable_cores())
        yield sample("process_threads", int(threads[1]) if threads else 1)
        yield sample("process_start_time_seconds", self._start_seconds)


class Cost(Collector):
    """CPU seconds of measuring and exporting.

    They are of pieces of code (`spent`) and of whole threads (`so_far`).
    """

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._lock = threading.Lock()
        self._pieces = 0.0
        self._threads: dict[str, float] = {}

    @contextmanager
    def spent(self) -> Iterator[None]:
        """Count the CPU time of the calling thread inside the block."""
        begin = time.thread_time()
        try:
            yield
        finally:
            self.add(time.thread_time() - begin)

    def add(self, seconds: float) -> None:
        """Add CPU seconds."""
        with self._lock:
            self._pieces += seconds

    def so_far(self, thread: str) -> None:
        """Count the whole CPU time of the calling thread, under this name: it does nothing else."""
        self._threads[thread] = time.thread_time()

    def seconds(self) -> float:
        """The total until now."""
        with self._lock:
            return self._pieces + sum(self._threads.values())

    def collect(self) -> Iterator[Metric]:
        """The one counter."""
        yield self._identity.sample("exporter_cpu_seconds_total", self.seconds())
