"""Micro-batches: the pieces that a batch is cut into, and what `auto` means for the workers that are there."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cluster.inventory.extensions import MODES
from cluster.inventory.task import Task

MOST_MICRO_BATCHES = 64
FEWEST_WINDOWS = 8
"""Of a micro-batch, as far as there is a choice: smaller matrix products cost a window more."""

USUAL_CORES = 4
"""Of a node that does not report its cores: every Raspberry Pi since the 2 has four."""


@dataclass(frozen=True)
class MicroBatches:
    """The number in use, and why it is that."""

    number: int
    why: str


def cores_of_workers(workers: Sequence[Task], cores: Mapping[str, int]) -> list[int]:
    """Cores that each worker has to itself, of the `cores` by node; nodes that do not report theirs are left out."""
    sharing = Counter(worker.node for worker in workers)
    return [max(1, cores[worker.node] // sharing[worker.node]) for worker in workers if worker.node in cores]


def auto_micro_batches(mode: str, batch_size: int, workers: int, cores: Sequence[int]) -> MicroBatches:
    """What `auto` is in a training of `workers` workers, of which some reported how many `cores` they have.

    One function serves all workers, so all get one number: the most frequent number of cores, the smaller of two that
    are equally frequent. Workers that share a batch get a power of two, which deals out evenly, at least one for each.
    """
    asked = Counter(cores)
    own = min(asked, key=lambda count: (-asked[count], count), default=USUAL_CORES)
    said = f"{asked[own]} of {workers}" if asked else "none"
    enough = min(MOST_MICRO_BATCHES, max(1, batch_size // FEWEST_WINDOWS))
    facts = MODES[mode]
    if not facts.shares_batches():
        number = min(own, enough)
        if number < own:
            return MicroBatches(number, f"{FEWEST_WINDOWS} windows each of a batch of {batch_size}, for {own} cores")
        what = f"one a core: {said} workers have {own} each" if facts.needs_roles() else "the cores of this machine"
        if not asked:
            what = f"no worker said how many cores it has: {USUAL_CORES} are usual"
        return MicroBatches(number, what)
    total = sum(cores) + own * (workers - len(cores))
    a_core = _power_below(min(total, enough))
    a_worker = min(1 << (workers - 1).bit_length(), _power_below(min(MOST_MICRO_BATCHES, batch_size)))
    if a_worker >= a_core:
        return MicroBatches(a_worker, f"one for each of {workers} workers, a power of two")
    return MicroBatches(a_core, f"one for each of {total} cores, a power of two, {FEWEST_WINDOWS} windows or more each")


def on_devices(mode: str, kind: str, devices: int, batch_size: int, on_processors: MicroBatches) -> MicroBatches:
    """What `auto` is where `devices` devices of a `kind` share each batch, or compute one each.

    A GPU or TPU computes a whole batch, or its share of one, at once; `on_processors` is the number for processors.
    """
    shared = devices if MODES[mode].in_steps else 1
    needed = min(1 << (shared - 1).bit_length(), _power_below(min(MOST_MICRO_BATCHES, batch_size)))
    if kind == "cpu" and on_processors.number >= needed:
        return on_processors
    if shared == 1:
        return MicroBatches(1, f"a {kind} computes a batch at once")
    return MicroBatches(needed, f"one for each of {shared} devices, a power of two")


def _power_below(count: int) -> int:
    """The largest power of two up to `count`, which is at least 1."""
    return 1 << (count.bit_length() - 1)
