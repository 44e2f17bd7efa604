"""Short trainings on 1, 2 and 4 workers of this machine: what each kind of role costs.

Roles and coordinator are the product's own processes. Linux counts their processor seconds.
"""

import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.forecast.costs import MeasuredCosts, RolesRun, add_costs, app_of, refuse_unless_costs
from core.ground.children import Child
from core.ground.errors import ClusterError, UsageError
from core.ground.files import parsed_json
from core.ground.waiting import until
from core.inventory import load
from core.inventory.extensions import MODES
from core.inventory.templates import local_inventory
from core.logs import say
from core.metrics.process import processor, usable_cores
from core.server.sockets import answers
from deploy.common.command_line import named, settings
from deploy.common.interrupts import interruptible, waiting_for
from deploy.common.project import environment_for_any_folder, module_command
from deploy.forecast.measurements import AdvanceReading, advances_of, measured_run
from deploy.jobs.apps import app_of_job
from deploy.jobs.services import environment_here
from deploy.render.units import MODULES

if TYPE_CHECKING:
    from core.inventory import Inventory, Task

WORKERS = (1, 2, 4)
READY_SECONDS = 300.0
LOOK_SECONDS = 0.05
WARM_CALLS = 3
"""Calls of each worker that do not count: it sets up its functions in them."""
WARM_SECONDS = 3.0
"""Time that does not count besides: a worker's first calls take a third more processor time."""
CALLS = 8
"""Calls of each worker that are enough, and at least MEASURE_SECONDS."""
MEASURE_SECONDS = 4.0
EPOCHS = 100_000
"""The training is ended long before."""
ENDLESS = (
    f"jobs.train.epochs={EPOCHS}",
    "jobs.train.validation_subjects=0",
    "jobs.train.early_stopping=null",
    "jobs.train.averaging=null",
    "jobs.train.refit=false",
    "jobs.train.replay_worst_batches=0",
    "page.listen=off",
)
CPUCLOCK_SCHED = 2
"""linux/posix-timers.h: processor time of all threads of a process."""

Limited = Callable[[Mapping[str, int]], AbstractContextManager[object]]
"""Slows processes, by the names of their roles, once they are warm."""


def measure_into(file: Path, inventory: "Inventory") -> None:
    """Measure the costs of the inventory's training here, and add them to the file.

    Raises UsageError for a file that is none of costs, and what `measured_costs` raises.
    """
    refuse_unless_costs(file)
    add_costs(
        file, measured_costs(inventory, app_of_job(inventory, "train", (), environment_here).flags)
    )
    say(f"wrote {file}", error=True)


def measured_costs(inventory: "Inventory", flags: Sequence[str]) -> MeasuredCosts:
    """Train the inventory's training for some seconds in mode `single`, then on roles.

    `flags` are those of the app for `python -m cluster train`. Raises UsageError for a mode without
    roles, ClusterError with the line that a process ended with, KeyboardInterrupt.
    """
    train = inventory.jobs.train
    if not train.facts.needs_roles():
        usual = " or ".join(name for name, facts in MODES.items() if facts.needs_roles())
        raise UsageError(
            f"mode {train.mode}: one machine alone has no roles to measure: take --mode {usual}"
        )
    servers = max(1, len(inventory.of_role("ps")))
    here = (f"jobs.train={json.dumps(train.model_dump(mode='json', by_alias=True))}", *ENDLESS)
    with waiting_for("training for some seconds in mode single"):
        alone = measured_run(
            inventory.path.resolve(),
            (*here, "jobs.train.mode=single", "jobs.train.codec={name: fp32}"),
            "mode single",
            flags,
        )
    runs = []
    for workers in WORKERS:
        with waiting_for(f"training for some seconds on {workers} of this machine"):
            runs.append(measured_roles(here, flags, workers, servers))
    options = train.mode_options
    return MeasuredCosts(
        app=app_of(train),
        mode=train.mode,
        codec=train.codec.name,
        options={} if options is None else options.model_dump(mode="json"),
        processor=processor() or "an unknown processor",
        cores=usable_cores(),
        servers=servers,
        batch_size=train.batch_size,
        epochs=train.epochs,
        single_seconds=alone.update_seconds,
        several=train.several_a_call(by_library=train.by_library(own_model=bool(train.app))),
        runs=tuple(runs),
    )


def measured_roles(
    overrides: Sequence[str],
    flags: Sequence[str],
    workers: int,
    servers: int,
    limited: Limited = lambda _: nullcontext(),
    seconds: float = MEASURE_SECONDS,
) -> RolesRun:
    """Train on so many workers, for so many seconds, until their calls are enough.

    See `measured_costs`.
    """
    with tempfile.TemporaryDirectory(prefix="pscluster-roles-") as folder, ExitStack() as stack:
        path = Path(folder, "inventory.yaml")
        path.write_text(local_inventory(workers, servers), encoding="utf-8")
        stack.enter_context(interruptible())
        processes = stack.enter_context(_roles(path))
        refuse_ended = partial(_refuse_ended, processes, Path(folder))
        command = module_command(
            "cluster",
            "train",
            *("--inventory", str(path), *settings((*overrides, f"runs={folder}/runs"))),
            *("--quiet", "--member", "cluster", *flags),
        )
        coordinator = stack.enter_context(
            Child(
                command,
                environment=environment_for_any_folder(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        )
        identifiers = {name: process.pid for name, process in processes.items()}
        taken = {**identifiers, "coordinator": coordinator.pid}
        measured: list[AdvanceReading[Mapping[str, float]]] = []
        warming: list[float] = []

        def enough(reading: AdvanceReading[Mapping[str, float]]) -> bool:
            if not measured:
                warming.append(reading.time)
                if (
                    reading.time - warming[0] >= WARM_SECONDS
                    and reading.advance.done >= WARM_CALLS * workers
                ):
                    stack.enter_context(limited(identifiers))
                    measured.append(reading)
                return False
            measured.append(reading)
            begin = measured[min(1, len(measured) - 1)]  # the first second has two speeds
            return (
                reading.time - begin.time >= seconds
                and reading.advance.done - begin.advance.done >= CALLS * workers
            )

        advances_of(
            coordinator,
            f"{workers} workers",
            lambda: {name: processor_seconds(process) for name, process in taken.items()},
            enough,
            refuse_ended,
        )
        refuse_ended()
        if len(measured) < 3:
            raise ClusterError(
                f"{workers} workers: the training did not come to enough updates: take a smaller"
                " jobs.train.batch_size"
            )
        history = _history(Path(folder, "runs"))
        return _outcome(workers, measured[1], measured[-1], history)


@contextmanager
def _roles(path: Path) -> Iterator[dict[str, Child]]:
    """Start the roles of a local inventory, and end them. Raises ClusterError."""
    inventory = load(path)
    folder = path.parent
    with ExitStack() as stack:
        tasks = (*inventory.of_role("ps"), *inventory.of_role("worker"))
        processes = {
            task.name: stack.enter_context(
                Child(
                    module_command(
                        MODULES[task.role],
                        *("--inventory", str(path), "--task", str(task.index)),
                    ),
                    environment=environment_for_any_folder(),
                    stdout=stack.enter_context(_log_of(folder, task.name).open("wb")),
                    stderr=subprocess.STDOUT,
                )
            )
            for task in tasks
        }
        for task in tasks:

            def is_settled(process: Child = processes[task.name], task: "Task" = task) -> bool:
                return process.poll() is not None or answers(task.host, task.port, 1.0)

            settled = until(is_settled, READY_SECONDS, LOOK_SECONDS)
            _refuse_ended(processes, folder)
            if not settled:
                raise ClusterError(f"{task.name} did not become ready at {task.address}")
        yield processes


def _log_of(folder: Path, role: str) -> Path:
    return folder / f"{role}.log"


def _refuse_ended(processes: Mapping[str, Child], folder: Path) -> None:
    """Raise ClusterError with the last line of a role that has ended."""
    for role, process in processes.items():
        if process.poll() is not None:
            text = _log_of(folder, role).read_text(encoding="utf-8", errors="replace")
            *_, last = "it said nothing", *text.strip().splitlines()
            raise ClusterError(f"{role} ended with {named(process.returncode)}: {last:.300}")


def processor_seconds(process: int) -> float:
    """Return the processor time of a process so far, by its clock of clock_getcpuclockid(3)."""
    return time.clock_gettime((~process << 3) | CPUCLOCK_SCHED)


def _history(runs: Path) -> list[dict[str, Any]]:
    """Return the events of the run so far; the last line may be cut."""
    lines = [
        line
        for path in runs.glob("*/history.jsonl")
        for line in path.read_text(encoding="utf-8").splitlines(keepends=True)
        if line.endswith("\n")
    ]
    return [parsed_json(line) for line in lines]


def _outcome(
    workers: int,
    begin: AdvanceReading[Mapping[str, float]],
    end: AdvanceReading[Mapping[str, float]],
    history: Sequence[Mapping[str, Any]],
) -> RolesRun:
    """Make the figures of what passed between two readings."""

    def taken(role: str) -> float:
        return sum(
            end.sample[name] - begin.sample[name] for name in end.sample if name.startswith(role)
        )

    updates = end.advance.done - begin.advance.done
    traffic = [event for event in history if event["event"] == "traffic"]
    counted = max(1, sum(event["steps"] for event in traffic))
    return RolesRun(
        workers,
        updates,
        end.time - begin.time,
        taken("coordinator"),
        taken("ps"),
        taken("worker"),
        updates * sum(event["sent_bytes"] for event in traffic) / counted,
        updates * sum(event["received_bytes"] for event in traffic) / counted,
        next((event["slots"] for event in history if event["event"] == "cut"), 1),
        end.advance.total // EPOCHS,
        end.advance.spread,
    )
