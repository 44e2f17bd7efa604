"""What a role process says about itself, read from its `/metrics`: once, or every few seconds by a thread."""

import threading
import time
from collections.abc import Callable, Collection, Sequence

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from cluster.control.client import NoAnswerError, ask
from cluster.errors import ClusterError
from cluster.inventory import Task
from cluster.metrics.scrapes import UNCOUNTED
from cluster.status.events import RoleAnswered, RoleSilent

ANSWER_SECONDS = 5.0
MOST_LINES = 10_000
"""A role writes some 150. Parsing this number takes a tenth of a second."""
BUILD = "pscluster_build_info"
CORES = "pscluster_process_cores"
MEMORY = "pscluster_process_anonymous_bytes"
SENT, RECEIVED = "pscluster_network_transmit_bytes_total", "pscluster_network_receive_bytes_total"

WATCHED_SECONDS, UNWATCHED_SECONDS = 5.0, 30.0
READ_SECONDS = 1.0
"""Deadline of one answer that is read in passing."""


def role_metrics(
    host: str, metrics_port: int, names: Collection[str] | None = None, timeout_seconds: float = ANSWER_SECONDS
) -> list[Sample]:
    """Every sample that a role process exports, or those of these names, which costs less to read.

    Raises ClusterError if the whole answer, of a bounded size, is not there within `timeout_seconds`.
    """
    address = f"{host}:{metrics_port}"
    try:
        answer = ask(address, "GET", UNCOUNTED, deadline_seconds=timeout_seconds)
        if answer.status != 200:
            raise ValueError(f"status {answer.status}")
        lines = answer.text.splitlines(keepends=True)
        if names is not None:
            starts = tuple(name + end for name in names for end in (" ", "{"))
            lines = [line for line in lines if line.startswith(starts)]
        if len(lines) > MOST_LINES:
            raise ValueError(f"{len(lines)} lines, more than {MOST_LINES}")
        families = list(text_string_to_metric_families("".join(lines)))
    except NoAnswerError as problem:
        raise ClusterError(f"{problem}; expected the role's metrics: is it still running?") from None
    except (ValueError, IndexError, KeyError) as problem:
        raise ClusterError(
            f"http://{address}{UNCOUNTED}: expected the role's metrics, got {problem}: "
            "does another program have its port?"
        ) from None
    return [sample for family in families for sample in family.samples]


def processor_of(host: str, metrics_port: int, timeout_seconds: float = ANSWER_SECONDS) -> str | None:
    """The kind of processor a role process runs on; None if it does not say."""
    try:
        samples = role_metrics(host, metrics_port, (BUILD,), timeout_seconds)
    except ClusterError:
        return None
    return next((sample.labels.get("processor") for sample in samples if sample.name == BUILD), None)


def cores_of(host: str, metrics_port: int, timeout_seconds: float = ANSWER_SECONDS) -> int | None:
    """Cores that a role process can compute on; None if it does not say."""
    try:
        samples = role_metrics(host, metrics_port, (CORES,), timeout_seconds)
    except ClusterError:
        return None
    return next((int(sample.value) for sample in samples if sample.name == CORES), None)


class RoleReader:
    """Reports memory and traffic of the tasks, read one after the other in a thread, until it is closed."""

    def __init__(
        self, tasks: Sequence[Task], report: Callable[[RoleAnswered | RoleSilent], None], watched: Callable[[], bool]
    ) -> None:  # fmt: skip
        """`watched()`: whether a person looks, so that the figures have to be fresh."""
        self._tasks, self._report, self._watched = tasks, report, watched
        self._before: dict[str, tuple[float, float, float]] = {}
        """Time, bytes sent and received when a role was read last."""
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="roles", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop. Waits for one answer at most."""
        self._end.set()
        self._thread.join(2 * READ_SECONDS)

    def _run(self) -> None:
        read = float("-inf")
        while not self._end.wait(1.0):
            if time.monotonic() - read < (WATCHED_SECONDS if self._watched() else UNWATCHED_SECONDS):
                continue
            read = time.monotonic()
            for task in self._tasks:
                if self._end.is_set():
                    return
                self._report(self._read(task))

    def _read(self, task: Task) -> RoleAnswered | RoleSilent:
        try:
            samples = role_metrics(task.host, task.metrics_port, (MEMORY, SENT, RECEIVED, BUILD), READ_SECONDS)
        except ClusterError:
            self._before.pop(task.name, None)
            return RoleSilent(task.name)
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
        return RoleAnswered(task.name, None if memory is None else int(memory), *rates, processor)
