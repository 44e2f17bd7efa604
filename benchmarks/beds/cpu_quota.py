"""Processes limited to a share of a core each, like slow machines.

Groups of cgroup v1's cpu controller.
"""

import math
import os
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

CONTROLLER = Path("/sys/fs/cgroup/cpu")
PERIOD_MICROSECONDS = 10_000
"""The period of a quota. With the kernel's default of 100 ms, half a step would run at full speed
and then stop, unlike on a slow machine."""
LEAST_QUOTA_MICROSECONDS = 1_000
"""The kernel refuses smaller ones."""
FIRST_WEIGHT = 16_384
"""Of a group that goes before others, whose weight is 1,024 (cpu.shares)."""
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
    with _made(quota, period, controller) as group:
        (group / "cgroup.procs").write_text(str(process_id))
        yield


@contextmanager
def slow_places(
    count: int,
    share: float,
    period_microseconds: int = PERIOD_MICROSECONDS,
    controller: Path = CONTROLLER,
) -> Iterator[list[Path]]:
    """Groups for processes to come, each with this share of one core: `enter` puts one in.

    Removed at the end.

    They go before what else the machine does, so that each has its share.
    """
    with ExitStack() as groups:
        quota = round(share * period_microseconds)
        made = [
            groups.enter_context(_made(quota, period_microseconds, controller))
            for _ in range(count)
        ]
        for group in made:
            (group / "cpu.shares").write_text(str(FIRST_WEIGHT))
        yield made


def enter(group: Path, process_id: int) -> None:
    """Put a process, with all its threads, into a group; its children begin there.

    One that has ended is none.
    """
    with suppress(ProcessLookupError):
        (group / "cgroup.procs").write_text(str(process_id))


def processes_in(group: Path) -> list[int]:
    """Those that are in a group."""
    return [int(one) for one in (group / "cgroup.procs").read_text().split()]


@contextmanager
def _made(quota: int, period: int, controller: Path) -> Iterator[Path]:
    group = controller / f"pscluster-{uuid.uuid4().hex[:8]}"
    group.mkdir()
    try:
        (group / "cpu.cfs_period_us").write_text(str(period))
        (group / "cpu.cfs_quota_us").write_text(str(quota))
        yield group
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
