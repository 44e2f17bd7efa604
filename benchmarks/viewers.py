"""What the live page costs with fifty viewers, for `benchmarks.metrics_cost`.

CPU seconds of its thread over those of all processes of a training. Fifty connections to `/events`
take everything they are sent. Counted from when all of them are there until the end: what loading
TensorFlow costs is not in the total. The viewers themselves, in this process, are not counted
either.
"""

import asyncio
import os
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks.beds.local_cluster import LocalCluster
from benchmarks.coordinators.viewers import THREAD_FILE

VIEWERS = 50
LOOK_SECONDS = 0.25


@dataclass
class Spent:
    """CPU seconds so far of the page's thread, and of all processes."""

    page: float
    total: float


@dataclass
class Audience:
    """Viewers in a thread of their own, and what is spent while all of them look."""

    cluster: LocalCluster
    viewers: int
    thread_file: Path
    received_bytes: int = 0
    connected: int = 0
    first: Spent | None = None
    last: Spent | None = None
    begun: float = 0.0
    ended: float = 0.0
    _threads: list[threading.Thread] = field(default_factory=list)

    def started(self, pid: int) -> None:
        """The coordinator runs: look at it from now on."""
        looking = threading.Thread(target=lambda: asyncio.run(self._look()), daemon=True)
        counting = threading.Thread(target=self._count, args=(psutil.Process(pid),), daemon=True)
        self._threads = [looking, counting]
        for thread in self._threads:
            thread.start()

    def gone(self) -> None:
        """The coordinator has ended; wait for the threads."""
        for thread in self._threads:
            thread.join()

    async def _look(self) -> None:
        await asyncio.gather(*(self._view() for _ in range(self.viewers)))

    async def _view(self) -> None:
        port = self.cluster.inventory.task("coordinator", 0).page_port
        while not self.thread_file.exists():
            await asyncio.sleep(LOOK_SECONDS)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET /events HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        try:
            while content := await reader.read(65536):
                if not self.received_bytes:
                    assert content.startswith(b"HTTP/1.1 200"), content[:200]
                self.connected += 1 if content.startswith(b"HTTP/1.1 200") else 0
                self.received_bytes += len(content)
        except ConnectionError:
            pass
        finally:
            writer.close()

    def _count(self, coordinator: psutil.Process) -> None:
        roles = [psutil.Process(process.pid) for process in self.cluster.processes.values()]
        while True:
            try:
                if self.connected >= self.viewers:
                    now = self._spent(coordinator, roles)
                    if self.first is None:
                        self.first, self.begun = now, time.monotonic()
                    self.last, self.ended = now, time.monotonic()
                coordinator.wait(LOOK_SECONDS)
            except psutil.TimeoutExpired:
                continue
            except psutil.Error:
                return
            return

    def _spent(self, coordinator: psutil.Process, roles: list[psutil.Process]) -> Spent:
        number = int(self.thread_file.read_text())
        page = sum(
            each.user_time + each.system_time for each in coordinator.threads() if each.id == number
        )
        total = sum(sum(process.cpu_times()[:2]) for process in (coordinator, *roles))
        if not page:
            raise psutil.NoSuchProcess(coordinator.pid)
        return Spent(page, total)


def measure(cluster: LocalCluster, settings: list[str]) -> dict[str, Any]:
    """One training with all viewers: the row, with `percent`.

    Raises RuntimeError if it was too short.
    """
    with tempfile.TemporaryDirectory() as folder:
        thread_file = Path(folder, "thread")
        audience = Audience(cluster, VIEWERS, thread_file)
        flags = cluster.flags(settings)
        os.environ[THREAD_FILE] = str(thread_file)
        try:
            cluster.coordinate(
                "benchmarks.coordinators.viewers", ["train"], flags, audience.started
            )
        finally:
            del os.environ[THREAD_FILE]
            audience.gone()
    if (
        audience.first is None
        or audience.last is None
        or audience.last.total <= audience.first.total
    ):
        raise RuntimeError(
            f"the training ended before all {VIEWERS} viewers were there: make it longer"
        )
    page = audience.last.page - audience.first.page
    total = audience.last.total - audience.first.total
    seconds = audience.ended - audience.begun
    return {
        "viewers": VIEWERS,
        "seconds": seconds,
        "page_cpu_seconds": page,
        "total_cpu_seconds": total,
        "received_bytes_per_viewer_second": audience.received_bytes / VIEWERS / seconds,
        "percent": 100 * page / total,
    }
