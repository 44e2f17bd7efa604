"""Slots: the pieces that a batch is cut into.

Also what `auto` means: in the library's arithmetic a number of the recipe alone, in TensorFlow's
one for the workers that are there.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from core.inventory.extensions import MODES
from core.inventory.task import Task

MOST_SLOTS = 64
FEWEST_WINDOWS = 8
"""The least windows of a slot, as far as there is a choice.

Smaller matrix products cost more a window.
"""

USUAL_CORES = 4
"""The cores of a node that does not report its cores: every Raspberry Pi since the 2 has four."""


USUAL_SLOTS = 32
"""A batch's in the library's arithmetic: for as many workers, at the cost of two."""

SLOTS_OF_BATCH_NORM = 4
"""A batch's in a network whose batch norm takes each slot by itself."""


@dataclass(frozen=True)
class BatchSlots:
    """The number in use, and why it is that."""

    number: int
    why: str


def cores_of_workers(workers: Sequence[Task], cores: Mapping[str, int]) -> list[int]:
    """Return the cores that each worker has to itself, of the `cores` by node.

    Nodes that do not report theirs are left out.
    """
    sharing = Counter(worker.node for worker in workers)
    return [
        max(1, cores[worker.node] // sharing[worker.node])
        for worker in workers
        if worker.node in cores
    ]


def is_power_of_two(number: int) -> bool:
    """Return whether a number of slots is one that halves down to 1."""
    return number & (number - 1) == 0


def slots_in_library(batch_size: int, *, batch_norm: bool) -> BatchSlots:
    """Return what `auto` is in the library's arithmetic, whatever the cluster is."""
    usual = SLOTS_OF_BATCH_NORM if batch_norm else USUAL_SLOTS
    if batch_size < usual:
        return BatchSlots(_power_below(batch_size), f"a window each of a batch of {batch_size}")
    if batch_norm:
        return BatchSlots(usual, "the same on every cluster; batch norm takes each by itself")
    return BatchSlots(usual, "the same on every cluster")


def auto_slots(mode: str, batch_size: int, workers: int, cores: Sequence[int]) -> BatchSlots:
    """Return what `auto` is in a training of `workers` workers.

    Some of them reported how many `cores` they have.

    One function serves all workers, so all get one number: the most frequent number of cores, the
    smaller of two that are equally frequent. Workers that share a batch get a power of two, which
    deals out evenly, at least one for each.
    """
    workers_by_cores = Counter(cores)
    core_count = min(
        workers_by_cores, key=lambda count: (-workers_by_cores[count], count), default=USUAL_CORES
    )
    if workers_by_cores:
        reporting_workers = f"{workers_by_cores[core_count]} of {workers}"
    else:
        reporting_workers = "none"
    enough = min(MOST_SLOTS, max(1, batch_size // FEWEST_WINDOWS))
    facts = MODES[mode]
    if not facts.shares_batches():
        number = min(core_count, enough)
        if number < core_count:
            return BatchSlots(
                number,
                f"{FEWEST_WINDOWS} windows each of a batch of {batch_size}, for {core_count} cores",
            )
        if facts.needs_roles():
            what = f"one a core: {reporting_workers} workers have {core_count} each"
        else:
            what = "the cores of this machine"
        if not workers_by_cores:
            what = f"no worker said how many cores it has: {USUAL_CORES} are usual"
        return BatchSlots(number, what)
    total = sum(cores) + core_count * (workers - len(cores))
    a_core = _power_below(min(total, enough))
    a_worker = min(1 << (workers - 1).bit_length(), _power_below(min(MOST_SLOTS, batch_size)))
    if a_worker >= a_core:
        return BatchSlots(a_worker, f"one for each of {workers} workers, a power of two")
    return BatchSlots(
        a_core,
        f"one for each of {total} cores, a power of two, {FEWEST_WINDOWS} windows or more each",
    )


def without_part(mode: str, number: int, workers: int) -> str:
    """Return a line on the workers that get no part of a step.

    The step is cut into `number` slots. Empty if each gets one.
    """
    idle = workers - number
    if idle <= 0 or not MODES[mode].in_steps:
        return ""
    if number < MOST_SLOTS:
        remedy = (
            f"set jobs.train.slots to {min(workers, MOST_SLOTS)}, where batch_size allows it, or"
        )
    else:
        remedy = f"{MOST_SLOTS} are the most: use fewer workers, or"
    return (
        f"{number} slots for {workers} workers: in {mode} {idle} of them compute no part of"
        f" a step: {remedy} take a mode whose workers each compute batches of their own (async,"
        " ssp, local)"
    )


def on_devices(
    mode: str, kind: str, devices: int, batch_size: int, on_processors: BatchSlots
) -> BatchSlots:
    """Return what `auto` is where `devices` of a `kind` share each batch, or compute one each.

    A GPU or TPU computes a whole batch, or its share of one, at once; `on_processors` is the number
    for processors.
    """
    if MODES[mode].in_steps:
        shared = devices
    else:
        shared = 1
    needed = min(1 << (shared - 1).bit_length(), _power_below(min(MOST_SLOTS, batch_size)))
    if kind == "cpu" and on_processors.number >= needed:
        return on_processors
    if shared == 1:
        return BatchSlots(1, f"a {kind} computes a batch at once")
    return BatchSlots(needed, f"one for each of {shared} devices, a power of two")


def _power_below(count: int) -> int:
    """The largest power of two up to `count`, which is at least 1."""
    return 1 << (count.bit_length() - 1)
