"""What ran where in a training, how busy it was, and how fast each worker is.

Processor time of each role, and its GPU; the calibration that all runs of a cluster share says how
fast the job `pi` found each worker.
"""

import json
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from cluster.jobs.roles import UsageSample, of_all, read_role
from core.ground.files import atomic_write, read_json
from core.inventory import Inventory, Task
from core.metrics.process import Gpu, GpuMeter, processor, usable_cores
from core.server.process import visible_gpus

log = logging.getLogger(__name__)

READ_SECONDS = 2.0
ALL_SECONDS = 6.0
LEAST_SECONDS = 10.0
"""A shorter training says nothing about who is idle."""
IDLE_OF_BUSIEST = 0.1
IDLE_DEVICE = 0.05
"""Below this part of the busiest worker's share, or of the time, a worker or a device did almost
nothing."""


MOST_IDLE_LINES = 8
"""Lines about idle workers; the last counts the others."""


@dataclass(frozen=True)
class Share:
    """One process over the time: shares are 0 to 1, of all its cores' time; None where unknown."""

    task: str
    node: str
    computes: bool
    device: str | None = None
    """Device that computes, such as `gpu:1`; None for the processor."""
    processor: str | None = None
    cores: int | None = None
    cpu_seconds: float | None = None
    cpu_share: float | None = None
    device_share: float | None = None


class BusyMeter(AbstractContextManager["BusyMeter"]):
    """Reads all processes when the `with` begins and ends, and warns of the idle ones."""

    def __init__(
        self, inventory: Inventory, tasks: Sequence[Task], devices: Sequence[str] = ()
    ) -> None:
        """`tasks`: the roles that take part.

        `devices`: what this process computes on itself, by TensorFlow's names.
        """
        self._inventory = inventory
        self._tasks = tasks
        self._coordinator = inventory.task("coordinator", 0)
        self._devices = [_numbered(name, inventory) for name in devices]
        self._gpus: list[GpuMeter] = []
        self._before: Mapping[str, UsageSample | None] = {}
        self._began = time.monotonic()
        self.seconds = 0.0
        self.shares: tuple[Share, ...] = ()

    def __enter__(self) -> "BusyMeter":
        for name in self._devices:
            if name.startswith("gpu:"):
                self._watch(int(name.removeprefix("gpu:")))
        self._before = self._read()
        self._began = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds, after = time.monotonic() - self._began, self._read()
        names = {task.name: task for task in (*self._tasks, self._coordinator)}
        self.shares = tuple(
            self._share(task, self._before.get(name), after.get(name))
            for name, task in names.items()
        )
        for gpu in self._gpus:
            gpu.close()
        for line in idle_lines(self.shares, self.seconds):
            log.warning("%s", line)

    def _watch(self, number: int) -> None:
        try:
            gpu = Gpu(number)
        except OSError as problem:
            log.warning("gpu:%d: how busy it is stays unknown: %s", number, problem)
            return
        self._gpus.append(GpuMeter(gpu, f"gpu:{number}"))

    def _read(self) -> dict[str, UsageSample | None]:
        usage = dict[str, UsageSample | None](
            zip(
                (task.name for task in self._tasks),
                of_all(self._tasks, read_role, READ_SECONDS, ALL_SECONDS),
                strict=True,
            )
        )
        seconds = [gpu.busy_seconds for gpu in self._gpus]
        usage[self._coordinator.name] = UsageSample(
            time.process_time(),
            usable_cores(),
            processor(),
            None if self._devices in ([], ["cpu:0"]) else "+".join(self._devices),
            fmean(seconds) if seconds else None,
        )
        return usage

    def _share(self, task: Task, before: UsageSample | None, after: UsageSample | None) -> Share:
        computes = task.role == "worker" or (task.role == "coordinator" and bool(self._devices))
        if after is None:
            return Share(task.name, task.node, computes)
        share = Share(task.name, task.node, computes, after.device, after.processor, after.cores)
        if before is None:  # its figures so far may be of days
            return share
        if before.cpu_seconds is None or after.cpu_seconds is None:
            return share
        # One that was restarted in between counts from its new start.
        if before.started != after.started or before.cpu_seconds > after.cpu_seconds:
            before = UsageSample(0.0)
        cpu = after.cpu_seconds - (before.cpu_seconds or 0.0)
        seconds = max(1e-9, self.seconds)
        if after.cores is not None:
            share = replace(share, cpu_share=min(1.0, cpu / (seconds * after.cores)))
        if after.device_seconds is not None:
            busy = after.device_seconds - (before.device_seconds or 0.0)
            share = replace(share, device_share=min(1.0, busy / seconds))
        return replace(share, cpu_seconds=cpu)

    def describe(self) -> dict[str, Any]:
        """The entry `busy` of `result.json`."""
        return {"seconds": self.seconds, "tasks": [dict(vars(share)) for share in self.shares]}


def _numbered(name: str, inventory: Inventory) -> str:
    """Return `gpu:2` for TensorFlow's name of a device of this process.

    TensorFlow counts the devices that it sees from 0.
    """
    kind, _, place = name.rpartition("/device:")[2].lower().partition(":")
    visible = inventory.jobs.train.device.ids or (visible_gpus() if kind == "gpu" else ())
    return f"{kind}:{visible[int(place)] if kind != 'cpu' and int(place) < len(visible) else place}"


def idle_lines(shares: Sequence[Share], seconds: float) -> list[str]:
    """Return a line for each worker and device that did almost nothing in a long training."""
    if seconds < LEAST_SECONDS:
        return []
    lines = [
        f"{share.device} of {share.task} on {share.node} was busy {share.device_share:.1%} of the"
        " training: `nvidia-smi` there shows what holds it; larger batches keep it busier"
        for share in shares
        if share.computes and share.device_share is not None and share.device_share < IDLE_DEVICE
    ]
    on_processors = [share for share in shares if share.computes and share.device is None]
    busiest = max((share.cpu_share or 0.0 for share in on_processors), default=0.0)
    idle = [
        share
        for share in on_processors
        if share.cpu_share is not None and share.cpu_share < IDLE_OF_BUSIEST * busiest
    ]
    lines += [
        f"{share.task} on {share.node} used {share.cpu_share:.1%} of its cores over the training,"
        f" the busiest worker {busiest:.0%}: is it slow to answer, or its node busy with something"
        " else? The report has each one's share"
        for share in idle[:MOST_IDLE_LINES]
    ]
    if len(idle) > MOST_IDLE_LINES:
        lines.append(f"{len(idle) - MOST_IDLE_LINES} more workers used as little")
    return lines


def _calibration(runs: Path, cluster: str) -> Path:
    return runs / f"calibration-{cluster}.json"


def keep_calibration(runs: Path, cluster: str, samples_per_second: dict[str, float]) -> None:
    """Store what the pi job measured, by task name. Raises ClusterError if it cannot be written."""
    content = {"schema": 1, "cluster": cluster, "samples_per_second": samples_per_second}
    atomic_write(_calibration(runs, cluster), json.dumps(content, indent=2).encode() + b"\n")


def latest_calibration(runs: Path, cluster: str) -> dict[str, float] | None:
    """Return samples per second by task name, as the last pi job measured them.

    None if none was kept or it is unreadable.
    """
    try:
        stored: Any = read_json(_calibration(runs, cluster))
        return {str(task): float(rate) for task, rate in stored["samples_per_second"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


class WorkerSpeeds:
    """How much each worker does in a second.

    Its first reply also sets its graph up: it says nothing about speed.
    """

    def __init__(self) -> None:
        self._done: dict[int, tuple[int, float]] = {}

    def add(self, task: int, count: int, seconds: float) -> None:
        """Count a reply of the worker `task`."""
        if task not in self._done:
            self._done[task] = (0, 0.0)
            return
        before, spent = self._done[task]
        self._done[task] = (before + count, spent + seconds)

    def by_name(self) -> dict[str, float]:
        """Return the speeds that are known, by the tasks' names."""
        return {
            f"worker:{task}": count / seconds
            for task, (count, seconds) in sorted(self._done.items())
            if seconds
        }


def speeds_of(samples_per_second: Mapping[str, float] | None) -> dict[int, float]:
    """Return the speeds by the worker's number; empty if there is none."""
    named = (samples_per_second or {}).items()
    return {
        int(task.removeprefix("worker:")): rate
        for task, rate in named
        if task.startswith("worker:") and rate > 0
    }
