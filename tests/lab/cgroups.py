"""A node's memory and CPU: control groups of version 1 around all its processes."""

import contextlib
import errno
import os
import signal
import time

from tests.lab.commands import LabError
from tests.lab.places import Places

CONTROLLERS = ("memory", "cpu", "unified")
"""`unified` (version 2, without controllers) is what systemd in the node works with."""

MEMORY_BYTES = 1 << 30
PERIOD_MICROSECONDS = 100_000
END_SECONDS = 20.0


def make(places: Places, node: str) -> None:
    """The node's groups, unlimited."""
    for controller in CONTROLLERS:
        places.cgroup(controller, node).mkdir(parents=True, exist_ok=True)


def limit_memory(places: Places, node: str, limit_bytes: int | None) -> None:
    """Above the limit the kernel kills processes of the node, as on a Pi without swap.

    Raises:
        LabError: The node uses more right now.
    """
    try:
        (places.cgroup("memory", node) / "memory.limit_in_bytes").write_text(str(limit_bytes or -1))
    except OSError as error:
        raise LabError(
            f"{node}: a limit of {limit_bytes} bytes was refused: {error.strerror}; it uses more"
        ) from None


def limit_cpu(places: Places, node: str, percent: float | None) -> None:
    """Percent of one core, all the node's processes together; None for no limit."""
    if percent is None:
        quota = -1
    else:
        quota = max(1000, round(PERIOD_MICROSECONDS * percent / 100))
    (places.cgroup("cpu", node) / "cpu.cfs_period_us").write_text(str(PERIOD_MICROSECONDS))
    (places.cgroup("cpu", node) / "cpu.cfs_quota_us").write_text(str(quota))


def processes(places: Places, node: str) -> list[int]:
    """All processes of the node, by the host's process ids."""
    try:
        return [
            int(word)
            for word in (places.cgroup("memory", node) / "cgroup.procs").read_text().split()
        ]
    except FileNotFoundError:
        return []


def usage(places: Places, node: str) -> dict[str, int]:
    """Memory now and at most, limit, processes, and how often the quota throttled the node."""
    memory = places.cgroup("memory", node)
    statistics = (places.cgroup("cpu", node) / "cpu.stat").read_text().split()
    return {
        "memory_bytes": int((memory / "memory.usage_in_bytes").read_text()),
        "peak_bytes": int((memory / "memory.max_usage_in_bytes").read_text()),
        "limit_bytes": int((memory / "memory.limit_in_bytes").read_text()),
        "killed_for_memory": int((memory / "memory.oom_control").read_text().split()[-1]),
        "processes": len(processes(places, node)),
        "throttled": int(statistics[statistics.index("nr_throttled") + 1]),
    }


def kill_all(places: Places, *nodes: str) -> None:
    """Ends all processes of the nodes without warning, and returns when they are gone."""
    deadline = time.monotonic() + END_SECONDS
    # A throttled process ends at the pace of its quota.
    for node in nodes:
        with contextlib.suppress(FileNotFoundError):
            limit_cpu(places, node, None)
    while left := [pid for node in nodes for pid in processes(places, node)]:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise LabError(
                f"processes {left} of {', '.join(nodes)} did not end within {END_SECONDS:.0f} s of"
                " SIGKILL"
            )
        time.sleep(0.01)


def remove(places: Places) -> list[str]:
    """Remove the lab's groups and systemd's below; return those that still hold a process."""
    for controller in CONTROLLERS:
        for folder, _, _ in os.walk(places.cgroup(controller), topdown=False):
            try:
                os.rmdir(folder)
            except FileNotFoundError:
                continue
            except OSError as error:
                if error.errno not in (errno.EBUSY, errno.ENOTEMPTY):
                    raise
    return [
        str(places.cgroup(controller))
        for controller in CONTROLLERS
        if places.cgroup(controller).exists()
    ]


def nodes(places: Places) -> list[str]:
    """Names of the nodes that have groups."""
    found = {
        path.name
        for controller in CONTROLLERS
        for path in places.cgroup(controller).glob("*")
        if path.is_dir()
    }
    return sorted(found)
