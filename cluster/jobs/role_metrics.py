"""What role processes say about themselves in `/metrics`: processor, cores, memory, and bytes on the wire."""

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from cluster.control.client import NoAnswerError, ask
from cluster.errors import ClusterError
from cluster.inventory import Task
from cluster.metrics.scrapes import UNCOUNTED
from cluster.status.events import RoleSeen

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
        self, tasks: Sequence[Task], report: Callable[[RoleSeen], None], watched: Callable[[], bool]
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

    def _read(self, task: Task) -> RoleSeen:
        try:
            samples = role_metrics(task.host, task.metrics_port, (MEMORY, SENT, RECEIVED, BUILD), READ_SECONDS)
        except ClusterError:
            self._before.pop(task.name, None)
            return RoleSeen(task.name, answers=False)
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
        return RoleSeen(task.name, True, None if memory is None else int(memory), *rates, processor)


COUNTERS = (
    ("pscluster_network_transmit_bytes_total",),
    ("pscluster_network_receive_bytes_total",),
    ("pscluster_network_transmit_packets_total", "pscluster_network_receive_packets_total"),
)


@dataclass(frozen=True)
class Traffic:
    """Of one role process or several: bytes sent, bytes received, packets both ways."""

    sent: int
    received: int
    packets: int

    def __add__(self, other: "Traffic") -> "Traffic":
        return Traffic(self.sent + other.sent, self.received + other.received, self.packets + other.packets)

    def __sub__(self, other: "Traffic") -> "Traffic":
        return Traffic(self.sent - other.sent, self.received - other.received, self.packets - other.packets)


def traffic_of(host: str, metrics_port: int, timeout_seconds: float = ANSWER_SECONDS) -> Traffic:
    """What a role process has sent and received so far. Raises ClusterError if it does not say in time."""
    names = [name for counter in COUNTERS for name in counter]
    samples = {sample.name: sample.value for sample in role_metrics(host, metrics_port, names, timeout_seconds)}
    try:
        return Traffic(*(int(sum(samples[name] for name in names)) for names in COUNTERS))
    except KeyError as problem:
        raise ClusterError(
            f"http://{host}:{metrics_port}/metrics: has no {problem}: expected a role of this version of pscluster: "
            "`fab deploy restart` makes it one"
        ) from None


@dataclass
class WireMeter:
    """Adds up traffic over the stretches in which only training ran."""

    sent: int = 0
    received: int = 0
    packets: int = 0
    steps: int = 0
    read: Callable[[], Traffic | None] = field(default=lambda: None, compare=False)
    """The traffic so far; None where it is unknown."""

    @classmethod
    def of(cls, counted: Mapping[str, int]) -> "WireMeter":
        """One that continues from what was `counted`."""
        return cls(counted["sent"], counted["received"], counted["packets"], counted["steps"])

    def add(self, before: Traffic | None, after: Traffic | None, steps: int) -> Traffic | None:
        """One stretch of `steps` steps between two readings, and what it carried; None if one of them failed."""
        if before is None or after is None:
            return None
        added = after - before
        self.sent += added.sent
        self.received += added.received
        self.packets += added.packets
        self.steps += steps
        return added

    def counted(self) -> dict[str, int]:
        """The sums so far, for a checkpoint."""
        return {"sent": self.sent, "received": self.received, "packets": self.packets, "steps": self.steps}

    def describe(self) -> dict[str, float | None]:
        """The entry of `result.json`: what a parameter server sends is what workers pull."""
        if not self.steps:
            return {"pull_bytes_per_step": None, "push_bytes_per_step": None, "packets_per_step": None}
        return {
            "pull_bytes_per_step": self.sent / self.steps,
            "push_bytes_per_step": self.received / self.steps,
            "packets_per_step": self.packets / self.steps,
        }
