"""What computes a training, and in which pieces: devices, arithmetic, and the slots of a batch.

`auto` is here too: in the library's arithmetic a number of the recipe alone, in TensorFlow's one
for the workers that are there.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, Field

from core.inventory import Task
from core.inventory.extensions import MODES
from core.inventory.fields import Section, are_distinct, invalid

if TYPE_CHECKING:
    from core.inventory.training import TrainJob


MOST_SLOTS = 128
MOST_FOR_CORES = 64
"""The most that `auto` cuts for cores alone: each slot is a graph that every worker sets up."""

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
    enough = min(MOST_FOR_CORES, max(1, batch_size // FEWEST_WINDOWS))
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


LIBRARY: Literal["library"] = "library"
TENSORFLOW: Literal["tensorflow"] = "tensorflow"
ArithmeticName = Literal["library", "tensorflow"]
ArithmeticSetting = Literal["auto", "library", "tensorflow"]


@dataclass(frozen=True)
class ChosenArithmetic:
    """The arithmetic in use, one for all workers of a run, and why it is that."""

    name: ArithmeticName
    why: str


def outside_library(job: "TrainJob", *, own_model: bool) -> str | None:
    """Return why the settings of a job ask for TensorFlow's arithmetic; None where they do not.

    `own_model`: whether an app brings the model.
    """
    if own_model:
        return "the library computes the built-in networks, and the app brings a model"
    if job.compiled:
        return "XLA compiles the network"
    if getattr(job.model, "kernel", "auto") == "fused":
        return "model.kernel is fused, TensorFlow's own operations"
    if job.device.kind != "cpu":
        return f"a {job.device.kind} computes in its own way"
    if isinstance(job.slots, int) and not is_power_of_two(job.slots):
        return f"the library takes powers of two, and slots is {job.slots}"
    return None


DeviceKind = Literal["cpu", "gpu", "tpu"]
MOST_DEVICES = 64


def _ids(value: object) -> object:
    """Check one number, or several.

    A wrong value is one problem here, not one a number.
    """
    numbers = (value,) if type(value) is int else value
    if numbers is not None and not are_distinct(numbers, 0, MOST_DEVICES - 1):
        raise invalid(
            f"expected different numbers of devices from 0 to {MOST_DEVICES - 1}",
            "write e.g. [0, 1], or null",
        )
    return numbers


class DeviceSettings(Section):
    """What computes the gradients; the parameters stay in the memory of the processors."""

    kind: DeviceKind = Field(
        "cpu",
        description=(
            "`gpu` needs NVIDIA's driver, `tpu` a TPU machine; then every node with a worker has"
            " some"
        ),
    )
    ids: Annotated[tuple[int, ...] | None, BeforeValidator(_ids)] = Field(
        None,
        description=(
            "which of a node's devices, as `nvidia-smi` numbers them: its first worker takes the"
            " first, and so on; `mirrored` takes all, and on `cpu` makes as many logical devices;"
            " null counts from 0"
        ),
    )
    memory_growth: bool = Field(
        True,
        description=(
            "take a GPU's memory as it is needed; false takes all of it at once, as TensorFlow does"
        ),
    )
    soft_placement: bool = Field(
        True,
        description=(
            "the processor computes what a device cannot; false ends the job with the operation"
        ),
    )

    def of_worker(self, task: Task, workers: Sequence[Task]) -> int | None:
        """Return the device that `task` takes, as its machine numbers them; None on processors.

        `workers` are those of one machine.

        None too for a worker for which `ids` leaves none.
        """
        if self.kind == "cpu" or task not in workers:
            return None
        place = workers.index(task)
        if self.ids is None:
            return place
        if place < len(self.ids):
            return self.ids[place]
        return None


PROCESSORS = DeviceSettings()
