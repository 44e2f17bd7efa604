"""Room on the node's file systems, and whether the server of the shared folder answers."""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from cluster.metrics.identity import Identity
from cluster.metrics.instruments import family
from cluster.metrics.probe import Probe

MOUNTS = Path("/proc/self/mountinfo")
DEADLINE_SECONDS = 1.0
"""A Prometheus waits for a scrape for some seconds: what a slower server said last is told again."""
PATIENCE_SECONDS = 10.0
"""A server that has not answered by then is down, not slow."""

_ESCAPE = re.compile(r"\\([0-7]{3})")


def type_of(folder: str, mounts: str) -> str | None:
    """Type of the file system that holds a folder, from the text of a mountinfo (proc(5)): nobody is asked.

    Of several at one place the last is on top.
    """
    found: tuple[int, str] | None = None
    for line in mounts.splitlines():
        words, _, source = line.partition(" - ")
        point = PurePosixPath(_ESCAPE.sub(lambda escape: chr(int(escape[1], 8)), words.split()[4]))
        depth = len(point.parts)
        if PurePosixPath(folder).is_relative_to(point) and (found is None or depth >= found[0]):
            found = (depth, source.split()[0])
    return found[1] if found else None


def is_remote(kind: str | None) -> bool:
    """Whether looking at it may wait for another machine: NFS, or an automount that will be NFS once looked at."""
    return kind is not None and (kind.startswith("nfs") or kind == "autofs")


class FilesystemCollector(Collector):
    """`shared` is the folder that all nodes share, None if there is none. A hung server costs a scrape one second."""

    def __init__(
        self, identity: Identity, shared: str | None, mounts: Path = MOUNTS,
        ask: Callable[[str], os.statvfs_result] = os.statvfs,
        deadline_seconds: float = DEADLINE_SECONDS, patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:  # fmt: skip
        self._identity, self._shared, self._mounts, self._ask = identity, shared, mounts, ask
        self._probe = Probe(lambda: ask(shared or "/"), deadline_seconds, patience_seconds)

    def collect(self) -> Iterator[Metric]:
        """Size and room of each file system; of a remote one whether it answers, and after what time."""
        size, available = family("node_filesystem_size_bytes"), family("node_filesystem_available_bytes")
        up, seconds = family("node_nfs_up"), family("node_nfs_probe_seconds")
        found = {"root": self._ask("/")}
        if self._shared is not None:
            remote = is_remote(type_of(self._shared, self._mounts.read_text()))
            answer = self._probe()
            if answer.value is not None:
                found["shared"] = answer.value
            if remote and not answer.waiting:
                labels = [*self._identity.values, "shared"]
                up.add_metric(labels, float(answer.value is not None))
                seconds.add_metric(labels, answer.seconds)
        for mount, room in found.items():
            size.add_metric([*self._identity.values, mount], room.f_blocks * room.f_frsize)
            available.add_metric([*self._identity.values, mount], room.f_bavail * room.f_frsize)
        yield from (each for each in (size, available, up, seconds) if each.samples)
