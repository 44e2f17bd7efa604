"""What a sweep will take: memory of a node, time of a run, from a short measured training."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from core.inventory.schema import THIS_MACHINE
from core.logs.lines import duration
from deploy.converge.machine_facts import (
    IDLE_MEGABYTES,
    MEGABYTE,
    alone,
    memory_of_roles,
)
from deploy.forecast.training import MemoryDemand, limits_of

if TYPE_CHECKING:
    from cluster.sweeps.sweep_file import SweepFile
    from core.inventory import Inventory


@dataclass(frozen=True)
class RunsDemand(MemoryDemand):
    """The memory that `runs` of a sweep take on a node at the same time."""

    runs: int = 1


@dataclass(frozen=True)
class MeasuredRun:
    """A training that was begun for a moment.

    `start_seconds` passed until its first update, and each further one took `update_seconds`. It
    has `updates` in all, and `memory_bytes` is its anonymous memory at the end.
    """

    settings: str
    start_seconds: float
    update_seconds: float
    updates: int
    memory_bytes: int

    @property
    def seconds(self) -> float:
        """The seconds of the whole training, validation and test left out."""
        return self.start_seconds + self.updates * self.update_seconds


@dataclass(frozen=True)
class SweepForecast:
    """What `fab sweep --dry-run` says. Seconds are None where nothing was measured."""

    name: str
    runs: int
    at_a_time: int
    needs: tuple[RunsDemand, ...]
    measured: tuple[MeasuredRun, ...]
    why_not_measured: str
    run_seconds: float | None
    seconds: float | None

    @property
    def fits(self) -> bool:
        """Whether every node has the memory."""
        return all(need.fits for need in self.needs)


def needs_of(
    sweep: "SweepFile",
    inventories: Sequence["Inventory"],
    memory: Mapping[str, int],
    measured: Sequence[MeasuredRun],
) -> tuple[RunsDemand, ...]:
    """Return the demand of each node by the widest run on it, or the widest on the cluster.

    There is one of the `inventories` for each setting.
    """
    limits = limits_of(memory)
    first = inventories[0]
    if sweep.placement == "cluster":
        roles = [memory_of_roles(inventory, {}) for inventory in inventories]
        return tuple(
            RunsDemand(
                node,
                max(sum(map(role_memory.of, names)) for role_memory in roles),
                limits.get(node),
            )
            for node, names in first.roles_by_machine().items()
        )
    one_run = max(
        [alone(inventory.jobs.train) for inventory in inventories]
        + [run.memory_bytes for run in measured]
    )
    demands = []
    for node, names in first.roles_by_machine().items():
        runs = names.count("worker")
        if runs:
            idle = 0
            if node != THIS_MACHINE:  # on nodes the roles stay beside the runs
                idle = IDLE_MEGABYTES * MEGABYTE * len(names)
            demands.append(RunsDemand(node, runs * one_run + idle, limits.get(node), runs))
    return tuple(demands)


def forecast_of(
    sweep: "SweepFile",
    needs: Sequence[RunsDemand],
    measured: Sequence[MeasuredRun],
    why_not: str = "",
) -> SweepForecast:
    """Return the forecast. The mean of the measured settings stands for those that were not."""
    places = 1
    if sweep.placement != "cluster":
        places = sum(need.runs for need in needs)
    at_a_time = max(1, min(places, sweep.run_count))
    run_seconds = seconds = None
    if measured:
        why_not = ""
        run_seconds = statistics.fmean(run.seconds for run in measured)
        # Runs of one machine share its cores, which one alone has kept busy; they only start side
        # by side.
        start = statistics.fmean(run.start_seconds for run in measured)
        seconds = sweep.run_count * (run_seconds - start + start / at_a_time)
    return SweepForecast(
        sweep.name,
        sweep.run_count,
        at_a_time,
        tuple(needs),
        tuple(measured),
        why_not,
        run_seconds,
        seconds,
    )


def lines(forecast: SweepForecast) -> list[str]:
    """Return the forecast as lines for a person."""
    text_lines = [f"sweep {forecast.name}: {forecast.runs} runs, {forecast.at_a_time} at a time"]
    for need in forecast.needs:
        if need.limit is None:
            limit = "its memory is not known"
        else:
            limit = f"of {need.limit // MEGABYTE} MB that it may give"
        fits = ""
        if not need.fits:
            fits = ": does not fit"
        text_lines.append(
            f"memory: {need.node}: {need.runs} at a time take {need.needed // MEGABYTE} MB"
            f" {limit}{fits}"
        )
    for run in forecast.measured:
        text_lines.append(
            f"time: {run.settings}: {duration(run.seconds)} a run ({run.updates:,} updates of"
            f" {1000 * run.update_seconds:.1f} ms after {run.start_seconds:.1f} s, as measured here"
            " alone)"
        )
    if forecast.seconds is None:
        text_lines.append(f"time: not known: {forecast.why_not_measured}")
    else:
        shared = ""
        if forecast.at_a_time > 1:
            shared = "; the runs share this machine's cores"
        text_lines.append(
            f"time: about {duration(forecast.seconds)} in all, validation and tests left out"
            f"{shared}"
        )
    return text_lines


def as_json(forecast: SweepForecast) -> dict[str, Any]:
    """Return the forecast as plain values."""
    return {"schema": 1, "fits": forecast.fits, **asdict(forecast)}
