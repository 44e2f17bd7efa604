"""Processes limited to a share of a core each, like slow machines.

Groups of cgroup v1's cpu controller.
"""

import math
import os
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

CONTROLLER = Path("/sys/fs/cgroup/cpu")
PERIOD_MICROSECONDS = 10_000
"""The period of a quota. With the kernel's default of 100 ms, half a step would run at full speed
and then stop, unlike on a slow machine."""
LEAST_QUOTA_MICROSECONDS = 1_000
"""The kernel refuses smaller ones."""
END_SECONDS = 5.0


def why_not(controller: Path = CONTROLLER) -> str:
    """The reason why this machine cannot set a quota; empty if it can."""
    if not (controller / "cgroup.procs").exists():
        return f"no cpu controller of cgroup v1 at {controller}"
    if os.geteuid() != 0:
        return "a cgroup's CPU quota needs root"
    trial = controller / f"pscluster-{uuid.uuid4().hex[:8]}"
    try:
        trial.mkdir()
    except OSError as problem:
        return f"{controller}: no cgroup can be made ({problem.strerror})"
    try:
        if not (trial / "cpu.cfs_quota_us").exists():
            return f"{controller}: its cgroups know no cpu.cfs_quota_us"
    finally:
        trial.rmdir()
    return ""


def period_of(least_share: float) -> int:
    """Return the period in microseconds that grants the smallest of these shares of a core."""
    return max(PERIOD_MICROSECONDS, math.ceil(round(LEAST_QUOTA_MICROSECONDS / least_share, 3)))


@contextmanager
def limited(
    shares: Mapping[int, float],
    period_microseconds: int = PERIOD_MICROSECONDS,
    controller: Path = CONTROLLER,
) -> Iterator[None]:
    """Hold each process, by its id, to its share of one core.

    Free them all again and remove the groups at the end.

    Raises OSError if the kernel refuses.
    """
    with ExitStack() as groups:
        for process_id, share in shares.items():
            groups.enter_context(
                _group(
                    process_id, round(share * period_microseconds), period_microseconds, controller
                )
            )
        yield


@contextmanager
def _group(process_id: int, quota: int, period: int, controller: Path) -> Iterator[None]:
    group = controller / f"pscluster-{uuid.uuid4().hex[:8]}"
    group.mkdir()
    try:
        (group / "cpu.cfs_period_us").write_text(str(period))
        (group / "cpu.cfs_quota_us").write_text(str(quota))
        (group / "cgroup.procs").write_text(str(process_id))
        yield
    finally:
        _remove(group, controller)


def _remove(group: Path, controller: Path) -> None:
    """What is still in the group goes back.

    A process that is just ending may keep it busy a moment longer.
    """
    end = time.monotonic() + END_SECONDS
    while True:
        for process_id in (group / "cgroup.procs").read_text().split():
            try:
                (controller / "cgroup.procs").write_text(process_id)
            except ProcessLookupError:
                continue
        try:
            group.rmdir()
        except OSError:
            if time.monotonic() > end:
                raise
        else:
            return
