"""How much memory a role will take for a training, from twelve measured figures. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.inventory.fields import MODELS, MODES

if TYPE_CHECKING:
    from core.inventory import Inventory
    from core.inventory.fields import Choice
    from core.inventory.training import TrainJob

MEGABYTE = 10**6
LARGEST_SHARE = 0.8
"""The share of a node's memory for all its roles; the rest is the system's, and for pages of
TensorFlow's libraries."""

_MEASURED_UNITS = (32, 128)
_MEASURED_SLOTS = (4, 16)
_MEASURED_MEGABYTES: Mapping[str, tuple[tuple[int, int], tuple[int, int]]] = {
    "ps": ((101, 125), (130, 169)),  # without the rows of a step, which are counted by themselves
    "worker": ((193, 480), (282, 605)),
    "coordinator": ((317, 358), (363, 397)),
}
"""Anonymous memory while three layers of 32 and of 128 units train, each process at its highest: in
four slots, and in sixteen of `sync` (`python -m benchmarks.memory`; x86-64, TF 2.21)."""

_BYTES_OF_ELEMENT = 4
IDLE_MEGABYTES = 88
"""Anonymous memory of a role that waits, its TensorFlow server above all; measured in
experiments/pages/performance.md."""


@dataclass(frozen=True)
class RoleMemory:
    """Anonymous bytes of one process of each role."""

    ps: int
    worker: int
    coordinator: int

    def of(self, role: str) -> int:
        """Bytes of one process of `role`."""
        return {"ps": self.ps, "worker": self.worker, "coordinator": self.coordinator}[role]


def estimate(units: int, extra_vectors: int = 0, part: int = 4, prepared: int = 4) -> RoleMemory:
    """Return the bytes of each role for layers of `units` (both directions together).

    They follow straight lines through the measured widths and counts. Between them they are within
    what one run differs from another; beyond 128 units they are a guess to warn with.
    `extra_vectors` float32 vectors of the model's size are added to the parameter server, for what
    keeps more there than parameters and optimizer slots. A worker computes `part` slots at
    once, and the coordinator prepares functions for parts of up to `prepared`; less than four of
    them take no less.
    """

    def megabytes(role: str, count: int) -> float:
        few, many = _MEASURED_MEGABYTES[role]
        least, most = _MEASURED_SLOTS
        share = (max(count, least) - least) / (most - least)
        low, high = (a + share * (b - a) for a, b in zip(few, many, strict=True))
        slope = (high - low) / (_MEASURED_UNITS[1] - _MEASURED_UNITS[0])
        return max(low, low + slope * (units - _MEASURED_UNITS[0]))

    ps, worker, coordinator = (
        round(megabytes(role, count) * MEGABYTE)
        for role, count in (("ps", prepared), ("worker", part), ("coordinator", prepared))
    )
    return RoleMemory(
        ps + extra_vectors * _BYTES_OF_ELEMENT * _parameters(units), worker, coordinator
    )


def of_inventory(inventory: "Inventory", cores: Mapping[str, int]) -> RoleMemory:
    """Return the bytes of each role for the inventory's training.

    `cores` by node decide what `auto` slots become.
    """
    from core.inventory.slots import cores_of_workers

    train = inventory.jobs.train
    workers = inventory.of_role("worker")
    own_model = train.app is not None
    cores_of_each = cores_of_workers(workers, cores)
    auto = train.auto_slots(len(workers), cores_of_each, own_model=own_model).number
    number = train.slots if isinstance(train.slots, int) else auto
    if train.by_library(own_model=own_model):
        # One call computes all slots of a part, so that only parts cost memory.
        shared = MODES[train.mode].shares_batches()
        number = min(number, 1 << (len(workers) - 1).bit_length()) if shared else 1
    return of_training(train.mode, number, len(workers), train.model)


def of_training(mode: str, slots: int, workers: int, model: "Choice") -> RoleMemory:
    """Bytes for a training in `mode` of a network described by the section `model`."""
    units = MODELS[model.name].widest_layer(model)
    rows = MODES[mode].server_vectors(slots)
    if not MODES[mode].shares_batches():
        return estimate(
            units, rows, part=slots
        )  # each worker computes whole batches, by one function
    worker_slots = max(1, -(-slots // max(1, workers)))
    part = 1 << (worker_slots - 1).bit_length()  # aligned subtrees: 1, 2, 4 and so on
    return estimate(units, rows, part, prepared=slots)


def alone(train: "TrainJob") -> int:
    """Bytes of one process that trains by itself, in mode `single`.

    It takes what a coordinator takes, and what a worker takes beside its server.
    """
    if isinstance(train.slots, int):
        number = train.slots
    else:
        number = _MEASURED_SLOTS[0]
    role_memory = estimate(
        MODELS[train.model.name].widest_layer(train.model), part=number, prepared=number
    )
    return role_memory.coordinator + role_memory.worker - IDLE_MEGABYTES * MEGABYTE


def _parameters(units: int) -> int:
    """Count the parameters of three plain layers of `units` on nine channels and six classes.

    Other models are taken for these.

    Each layer is a projection and an LSTM of 4 units (2 units + 1) parameters; 27,590 at 32 units,
    429,830 at 128.
    """
    return 26 * units**2 + 30 * units + 6
