"""What a training of an app will need and gain: memory a node, bytes a step, speed by the number of workers. Pure.

From one step measured on this machine and the speed of a link; docs/apps.md has the formulas and what they leave out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cluster.apps.measured import MeasuredStep
from cluster.inventory.extensions import MODES
from cluster.inventory.micro_batches import auto_micro_batches
from deploy.converge.memory_estimate import LARGEST_SHARE, MEGABYTE, RoleMemory

if TYPE_CHECKING:
    from cluster.inventory import Inventory
    from cluster.inventory.training import TrainJob

LINK_MEGABITS = 300.0
"""A second, each way: about what a Raspberry Pi 3B+ gets through its socket; a Pi 4 and later has 940."""
WORKERS = (1, 2, 4, 8, 16)
SERVER_BYTES, WORKER_BYTES, COORDINATOR_BYTES = 101 * MEGABYTE, 110 * MEGABYTE, 50 * MEGABYTE
"""Anonymous memory beside what depends on the app: of a server and a worker that a job has begun on (idle they take
88 MB, docs/performance.md), and of a coordinator over the measured process: what serves roles, metrics and page."""
COPIES_ON_A_SERVER = 4
"""Vectors under way in a parameter server: what is encoded, sent, received and decoded at the same time."""
CALL_SECONDS = 0.002
"""What an update costs the coordinator (docs/performance.md); `sync` and `allreduce` wait for it, and so does a worker
between two updates of its own."""
_BOARDS = (512, 1024, 2048, 4096, 8192, 16384)
"""Megabytes of memory that boards have."""


@dataclass(frozen=True)
class NodeMemory:
    """Bytes that the roles of a node will take, and what the node may give them; None where that is not known."""

    node: str
    roles: tuple[str, ...]
    needed: int
    limit: int | None

    @property
    def fits(self) -> bool:
        """Whether it is enough, as far as that is known."""
        return self.limit is None or self.needed <= self.limit

    @property
    def smallest_board(self) -> int | None:
        """Megabytes of the smallest board on which these roles fit; None for none."""
        return next((size for size in _BOARDS if self.needed <= LARGEST_SHARE * size * 2**20), None)


@dataclass(frozen=True)
class Speed:
    """A training on so many workers. `seconds` are those of one batch; `gain` is how many times `single` it is."""

    workers: int
    seconds: float
    gain: float
    on_the_wire: float
    """The share of `seconds` that is transfer."""


@dataclass(frozen=True)
class Outlook:
    """Everything that `fab app check` says beside the measured step itself."""

    mode: str
    codec: str
    link_megabits: float
    memory: tuple[NodeMemory, ...]
    speeds: tuple[Speed, ...]
    bytes_a_step: int
    """Of one worker, both ways, for one batch."""


def outlook(
    inventory: "Inventory", step: MeasuredStep, link_megabits: float, memory: Mapping[str, int]
) -> Outlook:  # fmt: skip
    """`memory` are the bytes of the nodes' memory, of those known; `THIS_MACHINE` is this one, for a cluster on it."""
    train = inventory.jobs.train
    servers = max(1, len(inventory.of_role("ps")))
    speeds = tuple(speed_of(train, step, workers, servers, link_megabits) for workers in WORKERS)
    return Outlook(
        train.mode, train.codec.name, link_megabits, node_memory(inventory, step, memory), speeds,
        traffic_of(train, step, max(1, len(inventory.of_role("worker")))),
    )  # fmt: skip


def role_memory(train: "TrainJob", step: MeasuredStep, servers: int) -> RoleMemory:
    """Anonymous bytes of one process of each role."""
    vector = 4 * (step.parameters + step.statistics)
    pieces = train.micro_batches if isinstance(train.micro_batches, int) else step.micro_batches
    kept = 1 + step.slots + MODES[train.mode].server_vectors(pieces) + COPIES_ON_A_SERVER
    server = SERVER_BYTES + -(-kept * vector // servers)
    worker = WORKER_BYTES + step.step_bytes + step.remembered * vector
    if MODES[train.mode].parameters == "workers":
        worker += (1 + step.slots) * vector
    return RoleMemory(server, worker, COORDINATOR_BYTES + step.process_bytes)


def node_memory(inventory: "Inventory", step: MeasuredStep, memory: Mapping[str, int]) -> tuple[NodeMemory, ...]:
    """Each node of the inventory; the nodes of a cluster on this machine share its memory, and count as one."""
    roles = role_memory(inventory.jobs.train, step, max(1, len(inventory.of_role("ps"))))
    tasks = inventory.roles_by_machine()
    limits = {node: int(LARGEST_SHARE * size) for node, size in memory.items()}
    return tuple(
        NodeMemory(node, tuple(names), sum(map(roles.of, names)), limits.get(node)) for node, names in tasks.items()
    )


def traffic_of(train: "TrainJob", step: MeasuredStep, workers: int) -> int:
    """Bytes over one worker's link for one batch of the training, both ways."""
    facts = MODES[train.mode]
    if not facts.needs_roles():
        return 0
    both = step.pull_bytes + step.push_bytes
    if facts.parameters == "workers":
        return round(2 * both * (workers - 1) / workers)
    return round(both / facts.batches(train.mode_options))


def compute_seconds(train: "TrainJob", step: MeasuredStep, workers: int) -> float:
    """Seconds that the slowest of `workers` machines like this one computes for one update.

    The gradient of a piece takes the seconds of the measured gradients over their waves of pieces, times its share of
    the examples; a worker computes as many pieces side by side as it has cores. The rest of a step has each worker.
    """
    facts = MODES[train.mode]
    waves = -(-step.micro_batches // step.cores)
    an_example = step.gradient_seconds / (waves * step.batch_size / step.micro_batches)
    shares = facts.shares_batches()
    count = train.micro_batches if isinstance(train.micro_batches, int) else step.micro_batches
    if shares and not isinstance(train.micro_batches, int):
        count = auto_micro_batches(train.mode, step.batch_size, workers, [step.cores] * workers).number
    own = -(-count // workers) if shares else count
    seconds = -(-own // step.cores) * (step.batch_size / count) * an_example
    seconds += step.step_seconds - step.gradient_seconds
    return seconds * facts.batches(train.mode_options)


def speed_of(
    train: "TrainJob", step: MeasuredStep, workers: int, servers: int, link_megabits: float
) -> Speed:  # fmt: skip
    """The expected speed on `workers` machines like this one, each behind a link of its own."""
    facts = MODES[train.mode]
    alone = step.step_seconds
    if not facts.needs_roles():
        return Speed(workers, alone, 1.0, 0.0)
    a_second = link_megabits * 1e6 / 8
    batches = facts.batches(train.mode_options)
    computed = compute_seconds(train, step, workers)
    if facts.parameters == "workers":
        sent = (step.pull_bytes + step.push_bytes) * (workers - 1) / workers / a_second
        return _speed(workers, computed + sent + CALL_SECONDS, sent, alone)
    pull, push = step.pull_bytes / a_second, step.push_bytes / a_second
    crowd = max(1.0, workers / servers)
    if facts.shares_batches():
        sent = (pull + push) * crowd  # all workers pull at once, and push at once
        return _speed(workers, computed + sent + CALL_SECONDS, sent, alone)
    sent = pull + push
    own = (computed + sent + CALL_SECONDS) / workers  # seconds an update, were the servers' links free
    at_servers = max(pull, push) / servers
    update = max(own, at_servers, CALL_SECONDS)
    return _speed(workers, update / batches, max(sent / workers, at_servers) / batches, alone)


def _speed(workers: int, seconds: float, sent: float, alone: float) -> Speed:
    return Speed(workers, seconds, alone / seconds, min(1.0, sent / seconds))


def outlook_json(step: MeasuredStep, found: Outlook) -> Mapping[str, object]:
    """Plain values."""
    return {
        "app": step.app,
        "task": step.task,
        "input_shape": step.input_shape,
        "outputs": step.outputs,
        "examples": step.examples,
        "parameters": step.parameters,
        "statistics": step.statistics,
        "mode": found.mode,
        "codec": found.codec,
        "batch_size": step.batch_size,
        "micro_batches": step.micro_batches,
        "cores": step.cores,
        "loss": step.loss,
        "first_loss_seconds": step.first_loss_seconds,
        "step_seconds": step.step_seconds,
        "gradient_seconds": step.gradient_seconds,
        "bytes_a_step": found.bytes_a_step,
        "link_megabits": found.link_megabits,
        "memory": [
            {
                "node": each.node,
                "roles": list(each.roles),
                "needed_bytes": each.needed,
                "limit_bytes": each.limit,
                "fits": each.fits,
                "smallest_board_megabytes": each.smallest_board,
            }
            for each in found.memory
        ],
        "speed": [
            {
                "workers": each.workers,
                "seconds_a_batch": each.seconds,
                "speed_up": each.gain,
                "share_on_the_wire": each.on_the_wire,
            }
            for each in found.speeds
        ],
    }


def lines(step: MeasuredStep, found: Outlook) -> Sequence[str]:
    """The same for people."""
    shape = " x ".join(map(str, step.input_shape)) or "one number"
    counted = f"{step.parameters:,} parameters" + (f", {step.statistics:,} statistics" if step.statistics else "")
    made = [
        f"app {step.app}: {step.task}, {step.examples:,} training examples of {shape}, {step.outputs} outputs",
        f"model: {counted}; loss of the first step {step.loss:.4f}",
        f"step: {_seconds(step.step_seconds)} here, batch {step.batch_size} in {step.micro_batches} micro-batches on "
        f"{step.cores} cores (median of {step.steps}); the first loss came after {step.first_loss_seconds:.1f} s",
    ]
    if MODES[found.mode].needs_roles():
        made.append(
            f"wire: {_bytes(found.bytes_a_step)} a step for each worker, pull and push, mode {found.mode}, codec "
            f"{found.codec}"
        )
    else:
        made.append(f"wire: nothing in mode {found.mode}")
    for each in found.memory:
        needs = f"memory: {each.node}: {', '.join(each.roles)}: {each.needed // MEGABYTE} MB"
        if each.limit is not None:
            word = "fits" if each.fits else "does NOT fit"
            made.append(f"{needs} of {each.limit // MEGABYTE} MB that roles may take: {word}")
        else:
            board = each.smallest_board
            made.append(f"{needs}: fits on a board of {board} MB" if board else f"{needs}: fits on no Raspberry Pi")
    if MODES[found.mode].needs_roles():
        made.append(f"expected on machines like this one, {found.link_megabits:g} Mbit/s each, over mode single here:")
        made += [
            f"  {each.workers:>2} worker{'s' if each.workers > 1 else ' '}  {each.gain:6.2f} times, "
            f"{_seconds(each.seconds)} a batch, {each.on_the_wire:.0%} of it on the wire"
            for each in found.speeds
        ]
    return made


def _seconds(value: float) -> str:
    return f"{value * 1000:.1f} ms" if value < 1 else f"{value:.2f} s"


def _bytes(value: int) -> str:
    return f"{value / MEGABYTE:.2f} MB" if value >= MEGABYTE else f"{value / 1000:.1f} kB"
