"""What the coordinator reads of role processes in their `/metrics`, and announces to them.

Read: processor, cores, memory, and bytes on the wire. Announced: the run, so that their log lines
carry its id.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from functools import partial
from http import HTTPStatus
from typing import TypeVar

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from core.control.actions import END
from core.control.client import NoAnswerError, ask, key_of
from core.control.own_state import own_token
from core.control.requests import RUN
from core.control.role_restart import request
from core.engine.membership import Membership
from core.ground.errors import ClusterError
from core.inventory import Task
from core.metrics import UNCOUNTED
from core.status.events import RoleSeen

log = logging.getLogger(__name__)

ANSWER_SECONDS = 5.0
ALL_ANSWERS_SECONDS = 10.0
"""Time that the job waits at most for the answers of all roles."""
_MOST_AT_ONCE = 16
MOST_LINES = 10_000
"""A role writes some 150. Parsing this number takes a tenth of a second."""
BUILD = "pscluster_build_info"
CORES = "pscluster_process_cores"
CPU = "pscluster_process_cpu_seconds_total"
MEMORY = "pscluster_process_anonymous_bytes"
SENT = "pscluster_network_transmit_bytes_total"
RECEIVED = "pscluster_network_receive_bytes_total"
DEVICE = "pscluster_device_busy_seconds_total"
STARTED = "pscluster_process_start_time_seconds"
USAGE = (BUILD, CORES, CPU, DEVICE, STARTED, MEMORY, SENT, RECEIVED)

WATCHED_SECONDS = 5.0
UNWATCHED_SECONDS = 30.0
READ_SECONDS = 1.0
"""Deadline of one answer that is read in passing."""

ANNOUNCED_SECONDS = 1.0
ALL_ANNOUNCED_SECONDS = 4.0
"""Times to announce a run to one task, and to all together: the end of a job waits for it."""
UNANNOUNCED_LOOK_SECONDS = 1.0

_Answer = TypeVar("_Answer")


def of_all(
    tasks: Sequence[Task],
    ask: Callable[[Task, float], _Answer],
    each_seconds: float = ANSWER_SECONDS,
    all_seconds: float = ALL_ANSWERS_SECONDS,
) -> list[_Answer]:
    """`ask(task, seconds)` of every task, at the same time, with the seconds that it may take."""
    end = time.monotonic() + all_seconds
    with ThreadPoolExecutor(
        min(_MOST_AT_ONCE, max(1, len(tasks))), thread_name_prefix="answers"
    ) as pool:
        return list(
            pool.map(
                lambda task: ask(task, max(0.0, min(each_seconds, end - time.monotonic()))), tasks
            )
        )


def role_metrics(
    address: str, names: Collection[str] | None = None, timeout_seconds: float = ANSWER_SECONDS
) -> list[Sample]:
    """Return every sample that a role process exports at `address`.

    With `names` it returns only those, which costs less to read. Raises ClusterError if the whole
    answer, of a bounded size, is not there within `timeout_seconds`.
    """
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
        raise ClusterError(
            f"{problem}; expected the role's metrics: is it still running?"
        ) from None
    except (ValueError, IndexError, KeyError) as problem:
        raise ClusterError(
            f"http://{address}{UNCOUNTED}: expected the role's metrics, got {problem}: "
            "does another program have its port?"
        ) from None
    return [sample for family in families for sample in family.samples]


@dataclass(frozen=True)
class UsageSample:
    """What one process used so far, and what it is; None where it does not say."""

    cpu_seconds: float | None
    cores: int | None = None
    processor: str | None = None
    device: str | None = None
    device_seconds: float | None = None
    started: float | None = None
    """Seconds of the Unix epoch by its own clock: another one is another process."""
    memory_bytes: int | None = None
    sent: float = 0.0
    received: float = 0.0
    """Bytes on the wire."""


def read_role(task: Task, timeout_seconds: float) -> UsageSample | None:
    """Return what a role process says in its metrics; None if it does not answer in time."""
    try:
        samples = role_metrics(task.metrics_address, USAGE, timeout_seconds)
    except ClusterError:
        return None
    values = {sample.name: sample.value for sample in samples}
    labels = {label: value for sample in samples for label, value in sample.labels.items()}
    if not values:  # another program has its port
        return None
    return UsageSample(
        values.get(CPU),
        int(values[CORES]) if CORES in values else None,
        labels.get("processor"),
        labels.get("device"),
        values.get(DEVICE),
        values.get(STARTED),
        int(values[MEMORY]) if MEMORY in values else None,
        values.get(SENT, 0.0),
        values.get(RECEIVED, 0.0),
    )


class RoleReader:
    """Reports memory and traffic of the tasks, read in turn in a thread, until it is closed."""

    def __init__(
        self, tasks: Sequence[Task], report: Callable[[RoleSeen], None], watched: Callable[[], bool]
    ) -> None:
        """`watched()`: whether a person looks, so that the figures have to be fresh."""
        self._tasks = tasks
        self._report = report
        self._watched = watched
        self._before: dict[str, tuple[float, float, float, float]] = {}
        """Time, bytes sent and received, seconds of all its cores when a role was read last."""
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
            if time.monotonic() - read < (
                WATCHED_SECONDS if self._watched() else UNWATCHED_SECONDS
            ):
                continue
            read = time.monotonic()
            for task in self._tasks:
                if self._end.is_set():
                    return
                self._report(self._read(task))

    def _read(self, task: Task) -> RoleSeen:
        reading = read_role(task, READ_SECONDS)
        if reading is None:
            self._before.pop(task.name, None)
            return RoleSeen(task.name, answers=False)
        core_seconds = (reading.cpu_seconds or 0.0) / max(1, reading.cores or 1)
        now = time.monotonic(), reading.sent, reading.received, core_seconds
        before = self._before.get(task.name)
        self._before[task.name] = now
        rates: list[float | None] = [None, None, None]
        if before is not None:
            seconds, *grown = [after - earlier for after, earlier in zip(now, before, strict=True)]
            if min(grown) >= 0:
                rates = [grown[0] / seconds, grown[1] / seconds, min(1.0, grown[2] / seconds)]
        if reading.cpu_seconds is None:
            rates[2] = None
        return RoleSeen(
            task.name, True, reading.memory_bytes, rates[0], rates[1], reading.processor, rates[2]
        )


COUNTERS = (
    (SENT,),
    (RECEIVED,),
    ("pscluster_network_transmit_packets_total", "pscluster_network_receive_packets_total"),
)


@dataclass(frozen=True)
class RoleTraffic:
    """What role processes carried: bytes sent, bytes received, packets both ways."""

    sent: int = 0
    received: int = 0
    packets: int = 0

    def __add__(self, other: "RoleTraffic") -> "RoleTraffic":
        return RoleTraffic(
            self.sent + other.sent, self.received + other.received, self.packets + other.packets
        )

    def __sub__(self, other: "RoleTraffic") -> "RoleTraffic":
        return RoleTraffic(
            self.sent - other.sent, self.received - other.received, self.packets - other.packets
        )


def traffic_of(task: Task, timeout_seconds: float = ANSWER_SECONDS) -> RoleTraffic:
    """Return what a role process has sent and received so far.

    Raises ClusterError if it does not say in time.
    """
    names = [name for counter in COUNTERS for name in counter]
    samples = {
        sample.name: sample.value
        for sample in role_metrics(task.metrics_address, names, timeout_seconds)
    }
    try:
        return RoleTraffic(*(int(sum(samples[name] for name in names)) for names in COUNTERS))
    except KeyError as problem:
        raise ClusterError(
            f"http://{task.metrics_address}/metrics: has no {problem}: expected a role of this"
            " version of pscluster: `fab deploy restart` makes it one"
        ) from None


@dataclass
class WireMeter:
    """Adds up traffic over the stretches in which only training ran."""

    carried: RoleTraffic = RoleTraffic()
    steps: int = 0
    read: Callable[[], RoleTraffic | None] = field(default=lambda: None, compare=False)
    """The traffic so far; None where it is unknown."""

    @classmethod
    def of(cls, sums: Mapping[str, int]) -> "WireMeter":
        """Return a meter that continues from these sums."""
        return cls(RoleTraffic(sums["sent"], sums["received"], sums["packets"]), sums["steps"])

    def add(
        self, before: RoleTraffic | None, after: RoleTraffic | None, steps: int
    ) -> RoleTraffic | None:
        """Add a stretch of `steps` steps between two readings; return what it carried.

        None if a reading failed.
        """
        if before is None or after is None:
            return None
        added = after - before
        self.carried = self.carried + added
        self.steps = self.steps + steps
        return added

    def sums(self) -> dict[str, int]:
        """The sums so far, for a checkpoint."""
        return {**asdict(self.carried), "steps": self.steps}

    def describe(self) -> dict[str, float | None]:
        """The entry of `result.json`: what a parameter server sends is what workers pull."""
        sums = {
            "pull_bytes": self.carried.sent,
            "push_bytes": self.carried.received,
            "packets": self.carried.packets,
        }
        return {
            f"{name}_per_step": count / self.steps if self.steps else None
            for name, count in sums.items()
        }


class RunAnnouncer(AbstractContextManager["RunAnnouncer"]):
    """Announces the run to `tasks` when the `with` begins and ends, and to workers that join.

    Without a run's id it announces nothing. It has a thread of its own: a role that does not
    answer, or answers late, costs the job nothing but the seconds of `ALL_ANNOUNCED_SECONDS` at its
    end.
    """

    def __init__(self, tasks: Sequence[Task], run: str, restarting: dict[str, str]) -> None:
        """`restarting` gets the processes of roles that restart at the end, by metrics address."""
        self._restarting = restarting
        self._tasks = tasks
        self._run = run
        self._announced: dict[str, float] = {}
        """Time at which a task that answered had joined; 0 for tasks that join nothing."""
        self._membership: Membership | None = None
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._keep_announcing, name="run", daemon=True)

    def __enter__(self) -> "RunAnnouncer":
        if self._run:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        if self._run:
            self._thread.join()
            answers = self._announce(
                [task for task in self._tasks if task.name in self._announced], END
            )
            self._restarting |= {
                task.metrics_address: process
                for task, (status, process) in answers.items()
                if status == HTTPStatus.ACCEPTED
            }

    def watch(self, membership: Membership) -> None:
        """Announce the run to each worker that joins from now on: it may be a new process."""
        self._membership = membership

    def _keep_announcing(self) -> None:
        while not self._end.is_set():
            due = {
                task: joined
                for task in self._tasks
                if self._announced.get(task.name) != (joined := self._joined(task))
            }
            heard = self._announce(list(due))
            self._announced |= {task.name: due[task] for task in heard}
            self._end.wait(UNANNOUNCED_LOOK_SECONDS)

    def _joined(self, task: Task) -> float:
        if self._membership and task.role == "worker":
            worker = self._membership.workers.get(task.index)
        else:
            worker = None
        if worker:
            return worker.joined
        return 0.0

    def _announce(self, tasks: Sequence[Task], suffix: str = "") -> dict[Task, tuple[int, str]]:
        """Return status and process of the tasks that answered."""
        path = f"{RUN}{self._run}{suffix}"
        answers = of_all(tasks, partial(_post, path), ANNOUNCED_SECONDS, ALL_ANNOUNCED_SECONDS)
        return {task: answer for task, answer in zip(tasks, answers, strict=True) if answer[0]}


def _post(path: str, task: Task, seconds: float) -> tuple[int, str]:
    key = key_of(own_token(), task.name)
    answer = request(task.metrics_address, "POST", path, seconds, key)
    # Asking again after another answer would change nothing.
    if answer[0] not in (HTTPStatus.OK, HTTPStatus.ACCEPTED):
        log.debug(
            "%s answers POST %s with status %d (0: none): its lines will not name the run",
            task.name,
            path,
            answer[0],
        )
    return answer
