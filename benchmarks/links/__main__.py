"""Training steps per second over links of 94 Mbit/s, or `--megabits`.

Ours beside ParameterServerStrategy with the weights read once.

Coordinator, parameter server and two workers, each a machine of its own on one switch
(`benchmarks.beds.virtual_network`); beside it the same cluster over plain loopback. Each variant
has role processes of its own and trains the network of `benchmarks.wire.network`, batch 32,
asynchronously; they take turns, so that the others rest while one is timed.

`stock` has Keras's layers, which take more processor time than ours; `stock_our_kernels` has our
layers and kernels in the same strategy, so that what is left between it and `ours` is how
parameters and gradients travel.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.asking import Asked, ChildFailedError
from benchmarks.beds.local_cluster import PROBE, READY_SECONDS, inventory_over
from benchmarks.beds.virtual_network import Machine, machines, on_this_machine, why_not
from benchmarks.report import arguments, publish, tell
from benchmarks.wire.ours import VARIANTS as OURS
from core.ground.accounts import account_for_roles
from core.inventory import Inventory, load
from core.inventory.templates import local_inventory
from core.server.rights import prepared_folders

MEGABITS = 94.0
WORKERS = 2
ROLES = ("coordinator", "ps", *("worker",) * WORKERS)
DEADLINE_SECONDS = 300.0
"""For a coordinator to connect, trace and warm up; ParameterServerStrategy has no deadline of its
own."""


@dataclass(frozen=True)
class Variant:
    """What trains, and on which kind of servers."""

    name: str
    command: tuple[str, ...]
    server: str


VARIANTS = (
    *(Variant(name, ("benchmarks.links.ours", "--variant", name), "lean") for name in OURS),
    Variant("stock", ("benchmarks.links.stock",), "stock"),
    Variant("stock_our_kernels", ("benchmarks.links.stock", "--our-kernels"), "stock"),
    Variant("stock_on_lean", ("benchmarks.links.stock",), "lean"),
)
SIZES = {"full": (VARIANTS, 60, 9), "quick": (VARIANTS, 30, 2), "smoke": (VARIANTS[::7], 2, 1)}
"""Variants, steps of a round, and rounds."""


def inventory_in(folder: Path, name: str, places: Sequence[Machine]) -> Inventory:
    """The variant's cluster on these machines, in the order of ROLES, with ports of its own."""
    path = folder / f"{name}.yaml"
    if len({place.address for place in places}) > 1:
        return inventory_over(path, places, servers=1)
    path.write_text(local_inventory(WORKERS, 1))
    return load(path)


@contextmanager
def roles(
    inventory: Inventory, places: Sequence[Machine], server: str
) -> Iterator[Callable[[], None]]:
    """The role processes of a cluster, each on its machine; what waits until they are ready.

    Killed afterwards.
    """
    tasks = [*inventory.of_role("ps"), *inventory.of_role("worker")]
    processes: list[subprocess.Popen[bytes]] = []

    def wait() -> None:
        end = time.monotonic() + READY_SECONDS
        for task, place, process in zip(tasks, places[1:], processes, strict=True):
            probe = [*place.prefix, sys.executable, "-c", PROBE, task.host, str(task.port)]
            while (
                subprocess.run(probe, check=True, capture_output=True, text=True).stdout != "True\n"
            ):
                if process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError(f"{task.name} did not become ready at {task.address}")

    try:
        for task, place in zip(tasks, places[1:], strict=True):
            where = ("--host", task.host, "--port", task.port, "--metrics-port", task.metrics_port)
            flags = (
                "--task",
                task.index,
                *where,
                "--peers",
                WORKERS,
                "--server",
                server,
                "--reads",  # what `benchmarks.links.ours` wrote
                prepared_folders(account_for_roles())[-1],
                "--die-with-parent",
            )
            command = [*place.prefix, sys.executable, "-m", f"{task.role}_node", *map(str, flags)]
            processes.append(subprocess.Popen(command, stderr=subprocess.DEVNULL))
        yield wait
    finally:
        for process in processes:
            process.kill()
            process.wait()


def coordinator(place: Machine, variant: Variant, inventory: Path) -> Asked:
    """Return the coordinator of a variant's cluster, on this machine."""
    words = (sys.executable, "-m", *variant.command, "--inventory", str(inventory))
    return Asked(variant.name, [*place.prefix, *words], DEADLINE_SECONDS)


def measure(
    network: str,
    places: Sequence[Machine],
    variants: Sequence[Variant],
    steps: int,
    rounds: int,
) -> list[dict[str, Any]]:
    """A row for each variant on one network.

    Steps per second of every round, or the problem it met.
    """
    found: dict[str, list[float]] = {variant.name: [] for variant in variants}
    losses: dict[str, float] = {}
    problems: dict[str, str] = {}
    with ExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="pscluster-benchmark-"))
        )
        running = {}
        inventories = {variant: inventory_in(folder, variant.name, places) for variant in variants}
        ready = [
            stack.enter_context(roles(inventories[each], places, each.server)) for each in variants
        ]
        for wait in ready:
            wait()
        for variant, inventory in inventories.items():
            asked = coordinator(places[0], variant, inventory.path)
            running[variant.name] = stack.enter_context(asked)
            try:
                running[variant.name].ask(steps)
            except ChildFailedError as problem:
                problems[variant.name] = str(problem)
        for _ in range(rounds):
            for name in [name for name in running if name not in problems]:
                try:
                    took = running[name].ask(steps)
                except ChildFailedError as problem:
                    problems[name] = str(problem)
                    continue
                found[name].append(took["steps"] / took["seconds"])
                losses[name] = took["last_loss"]
                tell(f"{network}, {name}: {found[name][-1]:.1f} steps/s")
    rows = []
    for variant in variants:
        name = variant.name
        row: dict[str, Any] = {"network": network, "variant": name, "server": variant.server}
        if name in problems:
            row["problem"] = problems[name]
        else:
            row["steps_per_second"] = statistics.median(found[name])
            row |= {"rounds": found[name], "steps_of_round": steps, "last_loss": losses[name]}
        rows.append(row)
    return rows


def summarize(rows: Sequence[Mapping[str, Any]], megabits: float = MEGABITS) -> dict[str, Any]:
    """Ours over stock: the median of the rounds' own ratios, by network."""
    of = {(row["network"], row["variant"]): row.get("rounds") for row in rows}

    def over(network: str, ours: str, theirs: str) -> float | None:
        ours_rounds = of.get((network, ours))
        their_rounds = of.get((network, theirs))
        if not ours_rounds or not their_rounds:
            return None
        return float(
            statistics.median(a / b for a, b in zip(ours_rounds, their_rounds, strict=True))
        )

    return {
        "steps_over_stock_our_kernels": over("links", "ours", "stock_our_kernels"),
        "fp16_steps_over_stock_our_kernels": over("links", "ours_fp16", "stock_our_kernels"),
        "steps_over_stock": over("links", "ours", "stock"),
        "fp16_steps_over_stock": over("links", "ours_fp16", "stock"),
        "steps_over_stock_on_lean": over("links", "ours", "stock_on_lean"),
        "fp16_steps_over_fp32": over("links", "ours_fp16", "ours"),
        **{f"{name}_steps_over_fp16": over("links", name, "ours_fp16") for name in list(OURS)[2:]},
        "loopback_steps_over_stock_our_kernels": over("loopback", "ours", "stock_our_kernels"),
        "loopback_steps_over_stock": over("loopback", "ours", "stock"),
        "megabits": megabits,
    }


def main() -> None:
    """Measure and print the object.

    Status 1 with one line where no machines can be made, or if a variant failed.
    """
    parser = arguments("links", "Steps per second over slow links, beside ParameterServerStrategy.")
    parser.add_argument("--megabits", type=float, default=MEGABITS, help="of each link")
    parser.add_argument("--variants", nargs="+", choices=[variant.name for variant in VARIANTS])
    options = parser.parse_args()
    problem = why_not()
    if problem:
        sys.exit(f"benchmarks.links: {problem}")
    variants, steps, rounds = SIZES[options.size]
    if options.variants:
        variants = tuple(variant for variant in VARIANTS if variant.name in options.variants)
    with machines(len(ROLES), options.megabits) as places:
        rows = measure("links", places, variants, steps, rounds)
    if options.size == "full":
        rows += measure("loopback", on_this_machine(len(ROLES)), variants, steps, rounds)
    publish("links", rows, summarize(rows, options.megabits), options)
    sys.exit(any("problem" in row for row in rows))


if __name__ == "__main__":
    main()
