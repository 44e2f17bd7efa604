"""What a sweep will take before it begins: memory of a node, time of a run, from a short measured training. Pure."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from cluster.inventory.schema import THIS_MACHINE
from deploy.converge.memory_estimate import IDLE_MEGABYTES, LARGEST_SHARE, MEGABYTE, alone, of_inventory

if TYPE_CHECKING:
    from cluster.inventory import Inventory
    from cluster.sweeps.sweep_file import SweepFile


@dataclass(frozen=True)
class NodeNeed:
    """Bytes that the runs of a sweep take on a node at the same time, and what it may give; None where unknown."""

    node: str
    runs: int
    needed: int
    limit: int | None

    @property
    def fits(self) -> bool:
        """Whether it is enough, as far as that is known."""
        return self.limit is None or self.needed <= self.limit


@dataclass(frozen=True)
class MeasuredRun:
    """A training that was begun for a moment: seconds until its first update, and what each further one took.

    `updates` is how many it has in all, `memory_bytes` its anonymous memory at the end.
    """

    settings: str
    start_seconds: float
    update_seconds: float
    updates: int
    memory_bytes: int

    @property
    def seconds(self) -> float:
        """The whole training, validation and test left out."""
        return self.start_seconds + self.updates * self.update_seconds


@dataclass(frozen=True)
class SweepOutlook:
    """What `fab sweep --dry-run` says. Seconds are None where nothing was measured."""

    name: str
    runs: int
    at_a_time: int
    needs: tuple[NodeNeed, ...]
    measured: tuple[MeasuredRun, ...]
    why_not_measured: str
    run_seconds: float | None
    seconds: float | None

    @property
    def fits(self) -> bool:
        """Whether every node has the memory."""
        return all(need.fits for need in self.needs)


def needs_of(
    sweep: "SweepFile", inventories: Sequence["Inventory"], memory: Mapping[str, int], measured: Sequence[MeasuredRun]
) -> tuple[NodeNeed, ...]:  # fmt: skip
    """Each node with the widest run on it, or the widest on the cluster. `inventories`: one for each setting."""
    limits = {node: int(LARGEST_SHARE * size) for node, size in memory.items()}
    first = inventories[0]
    if sweep.placement == "cluster":
        roles = [of_inventory(one, {}) for one in inventories]
        return tuple(
            NodeNeed(node, 1, max(sum(map(one.of, names)) for one in roles), limits.get(node))
            for node, names in first.roles_by_machine().items()
        )
    one_run = max([alone(one.jobs.train) for one in inventories] + [one.memory_bytes for one in measured])
    found = []
    for node, names in first.roles_by_machine().items():
        runs = names.count("worker")
        if runs:
            # On nodes the roles stay beside the runs.
            idle = 0 if node == THIS_MACHINE else IDLE_MEGABYTES * MEGABYTE * len(names)
            found.append(NodeNeed(node, runs, runs * one_run + idle, limits.get(node)))
    return tuple(found)


def outlook_of(
    sweep: "SweepFile", needs: Sequence[NodeNeed], measured: Sequence[MeasuredRun], why_not: str = ""
) -> SweepOutlook:
    """All of it. The mean of the measured settings stands for those that were not."""
    lanes = 1 if sweep.placement == "cluster" else sum(need.runs for need in needs)
    at_a_time = max(1, min(lanes, sweep.run_count))
    if not measured:
        return SweepOutlook(sweep.name, sweep.run_count, at_a_time, tuple(needs), (), why_not, None, None)
    # Runs of one machine share its cores, which one alone has kept busy; they only start side by side.
    start = statistics.fmean(one.start_seconds for one in measured) / at_a_time
    work = statistics.fmean(one.seconds - one.start_seconds for one in measured)
    return SweepOutlook(
        sweep.name, sweep.run_count, at_a_time, tuple(needs), tuple(measured), "",
        statistics.fmean(one.seconds for one in measured), sweep.run_count * (start + work),
    )  # fmt: skip


def lines(found: SweepOutlook) -> list[str]:
    """For a person."""
    said = [f"sweep {found.name}: {found.runs} runs, {found.at_a_time} at a time"]
    for need in found.needs:
        limit = "its memory is not known" if need.limit is None else f"of {need.limit // MEGABYTE} MB that it may give"
        fits = "" if need.fits else ": does not fit"
        said.append(f"memory: {need.node}: {need.runs} at a time take {need.needed // MEGABYTE} MB {limit}{fits}")
    for one in found.measured:
        said.append(
            f"time: {one.settings}: {duration(one.seconds)} a run ({one.updates:,} updates of "
            f"{1000 * one.update_seconds:.1f} ms after {one.start_seconds:.1f} s, as measured here alone)"
        )
    if found.seconds is None:
        said.append(f"time: not known: {found.why_not_measured}")
    else:
        shared = "; the runs share this machine's cores" if found.at_a_time > 1 else ""
        said.append(f"time: about {duration(found.seconds)} in all, validation and tests left out{shared}")
    return said


def duration(seconds: float) -> str:
    """`45 s`, `12 min`, `3.5 h`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def as_json(found: SweepOutlook) -> dict[str, Any]:
    """For programs."""
    return {"schema": 1, "fits": found.fits, **asdict(found)}
