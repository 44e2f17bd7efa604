"""What this process uses of its node."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from cluster.metrics.identity import Identity
from cluster.metrics.processor import usable_cores

STATUS = Path("/proc/self/status")
KIBIBYTE = 1024
FIELD = re.compile(r"^(RssAnon|RssFile|VmSwap):\s+(\d+) kB$", re.MULTILINE)
THREADS = re.compile(r"^Threads:\s+(\d+)$", re.MULTILINE)


def memory_bytes(status: str) -> dict[str, int]:
    """RssAnon, RssFile and VmSwap, in bytes, of the text of a /proc/PID/status (Linux 4.5 and newer)."""
    return {name: int(kibibytes) * KIBIBYTE for name, kibibytes in FIELD.findall(status)}


class ProcessCollector(Collector):
    """Memory, CPU time, threads and start time of this process.

    Anonymous memory is what counts on a 1 GB Pi: file-backed pages are the wheel's libraries, which the kernel can
    drop and read again.
    """

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._start_seconds = psutil.Process().create_time()

    def collect(self) -> Iterator[Metric]:
        """One sample of each figure."""
        gauge, counter = self._identity.gauge, self._identity.counter
        status = STATUS.read_text()
        memory = memory_bytes(status)
        threads = THREADS.search(status)
        yield gauge("process_anonymous_bytes", memory["RssAnon"])
        yield gauge("process_file_backed_bytes", memory["RssFile"])
        yield gauge("process_swap_bytes", memory["VmSwap"])
        yield counter("process_cpu_seconds_total", time.process_time())
        yield gauge("process_cores", usable_cores())
        yield gauge("process_threads", int(threads[1]) if threads else 1)
        yield gauge("process_start_time_seconds", self._start_seconds)
