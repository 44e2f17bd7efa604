"""Space on the node's file systems.

Also whether the server of the shared folder answers within a deadline.
"""

import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Generic, TypeVar

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from core.metrics.instruments import Identity, family

T = TypeVar("T")


@dataclass(frozen=True)
class QueryResult(Generic[T]):
    """An answer; `value` is None after a timeout or an error.

    `seconds` is the time the query took, or has taken so far.

    `waiting`: no answer yet, and too early to call the server down.
    """

    value: T | None
    seconds: float
    waiting: bool = False


class _Question(Generic[T]):
    """One query in a daemon thread, so that a hung query does not keep the process alive."""

    def __init__(self, ask: Callable[[], T]) -> None:
        self._ask = ask
        self._begin = time.monotonic()
        self._answer: QueryResult[T] | None = None
        self._answered = threading.Event()
        threading.Thread(target=self._run, name="probe", daemon=True).start()

    def _run(self) -> None:
        try:
            value: T | None = self._ask()
        except OSError:
            value = None
        self._answer = QueryResult(value, time.monotonic() - self._begin)
        self._answered.set()

    def within(self, seconds: float) -> QueryResult[T] | None:
        """The answer, if it comes within this time of the query's start."""
        self._answered.wait(max(0.0, seconds - self.open_seconds))
        return self._answer

    @property
    def open_seconds(self) -> float:
        """Time since the query's start."""
        return time.monotonic() - self._begin


class Probe(Generic[T]):
    """Runs one query at a time.

    While one hangs, further calls return at once with the latest answer.
    """

    def __init__(
        self, ask: Callable[[], T], deadline_seconds: float, patience_seconds: float
    ) -> None:
        """Let a call take `deadline_seconds` at most.

        A query open for `patience_seconds` counts as unanswered.
        """
        self._ask = ask
        self._deadline_seconds = deadline_seconds
        self._patience_seconds = patience_seconds
        self._lock = threading.Lock()
        self._question: _Question[T] | None = None
        self._latest: QueryResult[T] | None = None

    def __call__(self) -> QueryResult[T]:
        """Return the answer; the previous one while this query is open.

        It has no value after the patience or an OSError.
        """
        with self._lock:
            if self._question is not None and (answer := self._question.within(0.0)) is not None:
                self._question = None
                self._latest = answer
            if self._question is None:
                self._question = _Question(self._ask)
            question = self._question
            latest = self._latest
        answer = question.within(self._deadline_seconds)
        if answer is not None:
            return answer
        so_far = question.open_seconds
        if so_far >= self._patience_seconds:
            return QueryResult(None, so_far)
        if latest is None:
            return QueryResult(None, so_far, waiting=True)
        return QueryResult(latest.value, max(latest.seconds, so_far))


MOUNTS = Path("/proc/self/mountinfo")
DEADLINE_SECONDS = 1.0
"""Prometheus allows a scrape some seconds: for a slower server the scrape repeats the latest
answer."""
PATIENCE_SECONDS = 10.0
"""A server without an answer by then counts as down, not slow."""

_ESCAPE = re.compile(r"\\([0-7]{3})")


def type_of(folder: str, mounts: str) -> str | None:
    """Return the type of the file system that holds a folder, without touching it.

    The text of a mountinfo (proc(5)) says it.

    Of several mounts at one place the last is on top.
    """
    topmost: tuple[int, str] | None = None
    for line in mounts.splitlines():
        mount_fields, _, source = line.partition(" - ")
        point = PurePosixPath(
            _ESCAPE.sub(lambda escape: chr(int(escape[1], 8)), mount_fields.split()[4])
        )
        depth = len(point.parts)
        if PurePosixPath(folder).is_relative_to(point) and (topmost is None or depth >= topmost[0]):
            topmost = (depth, source.split()[0])
    if topmost:
        return topmost[1]
    return None


def is_remote(kind: str | None) -> bool:
    """Return whether access may wait for another machine.

    NFS may, and an automount that mounts NFS on access.
    """
    return kind is not None and (kind.startswith("nfs") or kind == "autofs")


class FilesystemCollector(Collector):
    """`shared` is the folder that all nodes share, or None.

    A hung server costs a scrape one second.
    """

    def __init__(
        self,
        identity: Identity,
        shared: str | None,
        mounts: Path = MOUNTS,
        ask: Callable[[str], os.statvfs_result] = os.statvfs,
        deadline_seconds: float = DEADLINE_SECONDS,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._identity = identity
        self._shared = shared
        self._mounts = mounts
        self._ask = ask
        self._probe = Probe(lambda: ask(shared or "/"), deadline_seconds, patience_seconds)

    def collect(self) -> Iterator[Metric]:
        """Yield size and free space of each file system.

        Of a remote one also whether and how fast it answers.
        """
        size = family("node_filesystem_size_bytes")
        available = family("node_filesystem_available_bytes")
        up = family("node_nfs_up")
        seconds = family("node_nfs_probe_seconds")
        filesystems = {"root": self._ask("/")}
        if self._shared is not None:
            remote = is_remote(type_of(self._shared, self._mounts.read_text()))
            answer = self._probe()
            if answer.value is not None:
                filesystems["shared"] = answer.value
            if remote and not answer.waiting:
                labels = [*self._identity.values, "shared"]
                up.add_metric(labels, float(answer.value is not None))
                seconds.add_metric(labels, answer.seconds)
        for mount, room in filesystems.items():
            size.add_metric([*self._identity.values, mount], room.f_blocks * room.f_frsize)
            available.add_metric([*self._identity.values, mount], room.f_bavail * room.f_frsize)
        yield from (metric for metric in (size, available, up, seconds) if metric.samples)
