"""Memory and traffic of every role process, read from their /metrics every few seconds while somebody looks."""

import threading
import time
from collections.abc import Callable

from cluster.errors import ClusterError
from cluster.inventory import Inventory, Task
from cluster.jobs.role_metrics import BUILD, role_metrics
from cluster.jobs.status_observer import StatusObserver

WATCHED_SECONDS = 5.0
UNWATCHED_SECONDS = 30.0
ANSWER_SECONDS = 1.0
MEMORY = "pscluster_process_anonymous_bytes"
SENT, RECEIVED = "pscluster_network_transmit_bytes_total", "pscluster_network_receive_bytes_total"


class RoleReader:
    """Reads one role after the other, in a thread of its own, until it is closed."""

    def __init__(self, inventory: Inventory, observer: StatusObserver, watched: Callable[[], bool]) -> None:
        self._tasks, self._observer, self._watched = inventory.tasks(), observer, watched
        self._before: dict[str, tuple[float, float, float]] = {}
        """Time, bytes sent and received when a role was read last."""
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="roles", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop. Waits for the answer that is awaited at most."""
        self._end.set()
        self._thread.join(2 * ANSWER_SECONDS)

    def _run(self) -> None:
        read = float("-inf")
        while not self._end.wait(1.0):
            if time.monotonic() - read < (WATCHED_SECONDS if self._watched() else UNWATCHED_SECONDS):
                continue
            read = time.monotonic()
            for task in self._tasks:
                if self._end.is_set():
                    return
                self._read(task)

    def _read(self, task: Task) -> None:
        try:
            samples = role_metrics(task.host, task.metrics_port, (MEMORY, SENT, RECEIVED, BUILD), ANSWER_SECONDS)
        except ClusterError:
            self._before.pop(task.name, None)
            with self._observer.state() as state:
                if task.role != "coordinator":
                    state.silent(task.name)
            return
        now = time.monotonic()
        values = {sample.name: sample.value for sample in samples}
        sent, received = values.get(SENT, 0.0), values.get(RECEIVED, 0.0)
        before = self._before.get(task.name)
        self._before[task.name] = now, sent, received
        rates: tuple[float | None, float | None] = (None, None)
        if before is not None and sent >= before[1] and received >= before[2]:
            since = now - before[0]
            rates = (sent - before[1]) / since, (received - before[2]) / since
        memory = values.get(MEMORY)
        processor = next((sample.labels.get("processor") for sample in samples if sample.name == BUILD), None)
        with self._observer.state() as state:
            if processor:
                state.computes_on(task.name, processor)
            state.answered(task.name, None if memory is None else int(memory), *rates)
