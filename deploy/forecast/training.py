"""What a training of an app will need: memory, and bytes a step.

All is computed from one step measured on this machine and the nodes' memory; docs/apps.md has the
formulas.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cluster.apps.measured import MeasuredStep
from core.inventory.extensions import MODES
from deploy.cluster.connector import Connector
from deploy.cluster.fleet import Fleet
from deploy.converge.apply import survey
from deploy.converge.machine_facts import LARGEST_SHARE, MEGABYTE, RoleMemory

if TYPE_CHECKING:
    from core.inventory import Inventory
    from core.inventory.training import TrainJob


@dataclass(frozen=True)
class MemoryDemand:
    """Bytes that are `needed` on a node, and its `limit`, which is None where it is not known."""

    node: str
    needed: int
    limit: int | None

    @property
    def fits(self) -> bool:
        """Whether it is enough, as far as that is known."""
        return self.limit is None or self.needed <= self.limit


def limits_of(memory: Mapping[str, int]) -> dict[str, int]:
    """Return the bytes that roles may take on each node, from its memory."""
    return {node: int(LARGEST_SHARE * size) for node, size in memory.items()}


SERVER_BYTES = 69 * MEGABYTE
WORKER_BYTES = 78 * MEGABYTE
COORDINATOR_BYTES = 50 * MEGABYTE
"""Anonymous memory beside what depends on the app: of a server and a worker that a job has begun on
(idle they take 59 MB, experiments/pages/performance.md), and of a coordinator over the measured
process: what serves roles, metrics and page."""
COPIES_ON_A_SERVER = 4
"""Vectors under way in a parameter server: what is encoded, sent, received and decoded at the same
time."""
_BOARDS = (512, 1024, 2048, 4096, 8192, 16384)
"""Megabytes of memory that boards have."""


@dataclass(frozen=True)
class RolesDemand(MemoryDemand):
    """The memory that the roles of a node will take."""

    roles: tuple[str, ...] = ()

    @property
    def smallest_board(self) -> int | None:
        """Megabytes of the smallest board on which these roles fit; None for none."""
        return next((size for size in _BOARDS if self.needed <= LARGEST_SHARE * size * 2**20), None)


@dataclass(frozen=True)
class TrainingForecast:
    """Everything that `fab app check` says beside the measured step itself."""

    mode: str
    codec: str
    memory: tuple[RolesDemand, ...]
    bytes_a_step: int
    """Bytes of one worker, both ways, for one batch."""


def forecast(
    inventory: "Inventory", step: MeasuredStep, memory: Mapping[str, int]
) -> TrainingForecast:
    """Return the forecast of the inventory's training.

    `memory` has the bytes of the nodes whose memory is known; `THIS_MACHINE` is this one, for a
    cluster on it.
    """
    train = inventory.jobs.train
    return TrainingForecast(
        train.mode,
        train.codec.name,
        node_memory(inventory, step, memory),
        traffic_of(train, step, max(1, len(inventory.of_role("worker")))),
    )


def role_memory(train: "TrainJob", step: MeasuredStep, servers: int) -> RoleMemory:
    """Return the anonymous bytes of one process of each role."""
    vector = 4 * (step.parameters + step.statistics)
    if isinstance(train.slots, int):
        pieces = train.slots
    else:
        pieces = step.batch_slots
    vector_count = 1 + step.slots + MODES[train.mode].server_vectors(pieces) + COPIES_ON_A_SERVER
    server = SERVER_BYTES + -(-vector_count * vector // servers)
    worker = WORKER_BYTES + step.step_bytes + step.remembered * vector
    if MODES[train.mode].parameters == "workers":
        worker += (1 + step.slots) * vector
    return RoleMemory(server, worker, COORDINATOR_BYTES + step.process_bytes)


def node_memory(
    inventory: "Inventory", step: MeasuredStep, memory: Mapping[str, int]
) -> tuple[RolesDemand, ...]:
    """Return the demand of each node of the inventory.

    The nodes of a cluster on this machine share its memory, and count as one.
    """
    roles = role_memory(inventory.jobs.train, step, max(1, len(inventory.of_role("ps"))))
    tasks = inventory.roles_by_machine()
    limits = limits_of(memory)
    return tuple(
        RolesDemand(node, sum(map(roles.of, names)), limits.get(node), tuple(names))
        for node, names in tasks.items()
    )


def traffic_of(train: "TrainJob", step: MeasuredStep, workers: int) -> int:
    """Return the bytes over one worker's link for one batch of the training, both ways."""
    facts = MODES[train.mode]
    if not facts.needs_roles():
        return 0
    both = step.pull_bytes + step.push_bytes
    if facts.parameters == "workers":
        return round(2 * both * (workers - 1) / workers)
    return round(both / facts.batches(train.mode_options))


_OF_STEP = (
    "app",
    "task",
    "input_shape",
    "outputs",
    "examples",
    "parameters",
    "statistics",
    "batch_size",
    "batch_slots",
    "cores",
    "loss",
    "first_loss_seconds",
    "step_seconds",
)
"""Fields of the measured step in the JSON."""


def forecast_json(step: MeasuredStep, prediction: TrainingForecast) -> Mapping[str, object]:
    """Return the forecast as plain values."""
    return {
        **{name: getattr(step, name) for name in _OF_STEP},
        "mode": prediction.mode,
        "codec": prediction.codec,
        "bytes_a_step": prediction.bytes_a_step,
        "memory": [
            {
                "node": demand.node,
                "roles": list(demand.roles),
                "needed_bytes": demand.needed,
                "limit_bytes": demand.limit,
                "fits": demand.fits,
                "smallest_board_megabytes": demand.smallest_board,
            }
            for demand in prediction.memory
        ],
    }


def lines(step: MeasuredStep, prediction: TrainingForecast) -> Sequence[str]:
    """Return the forecast as lines for people."""
    shape = " x ".join(map(str, step.input_shape)) or "one number"
    counted = f"{step.parameters:,} parameters"
    if step.statistics:
        counted += f", {step.statistics:,} statistics"
    text_lines = [
        (
            f"app {step.app}: {step.task}, {step.examples:,} training examples of {shape},"
            f" {step.outputs} outputs"
        ),
        f"model: {counted}; loss of the first step {step.loss:.4f}",
        (
            f"step: {_seconds(step.step_seconds)} here, batch {step.batch_size} in"
            f" {step.batch_slots} slots on {step.cores} cores (median of {step.steps});"
            f" the first loss came after {step.first_loss_seconds:.1f} s"
        ),
    ]
    if MODES[prediction.mode].needs_roles():
        text_lines.append(
            f"wire: {_bytes(prediction.bytes_a_step)} a step for each worker, pull and push, mode"
            f" {prediction.mode}, codec {prediction.codec}"
        )
    else:
        text_lines.append(f"wire: nothing in mode {prediction.mode}")
    text_lines += [_memory_line(demand) for demand in prediction.memory]
    return text_lines


def _memory_line(demand: RolesDemand) -> str:
    needs = f"memory: {demand.node}: {', '.join(demand.roles)}: {demand.needed // MEGABYTE} MB"
    if demand.limit is not None:
        word = "fits"
        if not demand.fits:
            word = "does NOT fit"
        return f"{needs} of {demand.limit // MEGABYTE} MB that roles may take: {word}"
    if demand.smallest_board:
        return f"{needs}: fits on a board of {demand.smallest_board} MB"
    return f"{needs}: fits on no Raspberry Pi"


def _seconds(value: float) -> str:
    if value < 1:
        return f"{value * 1000:.1f} ms"
    return f"{value:.2f} s"


def _bytes(value: int) -> str:
    if value >= MEGABYTE:
        return f"{value / MEGABYTE:.2f} MB"
    return f"{value / 1000:.1f} kB"


_TOTAL = re.compile(r"MemTotal:\s+(\d{1,12}) kB\s*")


def memory_of_nodes(fleet: Fleet) -> tuple[Mapping[str, int], Mapping[str, str]]:
    """Return the bytes of memory of the nodes that answer, and why each other one does not."""
    answers = survey(fleet, _total)
    bytes_by_node = {name: total for name, total in answers.facts.items() if total}
    silent = {
        name: "does not say how much memory it has"
        for name, total in answers.facts.items()
        if not total
    }
    return bytes_by_node, silent | {
        name: str(failure.last_lines[0]) for name, failure in answers.lost.items()
    }


def _total(node: Connector) -> int:
    """Return the bytes of memory, 0 where the node's answer is none."""
    node.open()
    match = _TOTAL.fullmatch(node.run(["grep", "-m", "1", "MemTotal:", "/proc/meminfo"]).text)
    if match:
        return 1024 * int(match[1])
    return 0
