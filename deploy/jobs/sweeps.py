"""Sweeps and programs on all workers' nodes: a job at the coordinator, a runner at each worker.

No node can log in on another. The runners connect to the job on the coordinator's node and do what
it asks (`cluster/programs/lead.py`), so that the program outlives the operator's connection.
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from cluster.apps.files import own_digests
from cluster.programs.frames import key_of_runner
from core.ground.errors import ClusterError, UsageError
from core.ground.parcel import Content
from core.logs import say
from deploy.cluster.connector import CommandResult, Connector
from deploy.cluster.fleet import Fleet, split_errors
from deploy.cluster.places import NodePlaces
from deploy.common.interrupts import waiting_for
from deploy.jobs.apps import NO_APP, AppOfJob
from deploy.jobs.node_jobs import NodeJobs, begin, new_folder
from deploy.jobs.program_task import MEMBERS, TASK, TASK_JOB, ProgramTask
from deploy.jobs.request import SWEEP, to_bytes

if TYPE_CHECKING:
    from cluster.sweeps.sweep_file import SweepFile
    from core.inventory import Inventory, Task


def start_runners(
    fleet: Fleet,
    places: NodePlaces,
    tasks: Sequence[tuple["Task", ProgramTask]],
    files: Mapping[str, Content],
) -> Mapping[str, ClusterError]:
    """Start each runner on its worker's node with these files.

    Returns the nodes where that failed, with the reason.
    """

    def start(node: Connector) -> None:
        for of_worker, task in tasks:
            if of_worker.node == node.name:
                start_runner(node, places, task, {TASK: to_bytes(task), **files})

    results = fleet.each(start, list(dict.fromkeys(of_worker.node for of_worker, _ in tasks)))
    return split_errors(results)[1]


def program_tasks(
    inventory: "Inventory",
    program: str,
    token: str,
    environments: Mapping[str, str] = MappingProxyType({}),
    apps: tuple[str, ...] = (),
) -> Sequence[tuple["Task", ProgramTask]]:
    """Return the task of each worker's runner. Runners of one node get ports apart.

    Each gets its member's key, made of the job's `token`. `environments` has the key of a node's
    packages besides, where it has some. Pure.
    """
    lead = f"{inventory.task('coordinator', 0).host}:{inventory.ports.of_programs[0]}"
    pairs = []
    for task in inventory.of_role("worker"):
        ports = ports_of(inventory, task)
        key = key_of_runner(token, task.name)
        packages = environments.get(task.node, "")
        pairs.append((task, ProgramTask(lead, key, task.name, ports, program, packages, apps)))
    return pairs


def ports_of(inventory: "Inventory", worker: "Task") -> tuple[int, ...]:
    """Return one worker's share of the ports for programs of its node.

    The workers of a node divide them.
    """
    on_node = [task.name for task in inventory.of_role("worker") if task.node == worker.node]
    return tuple(inventory.ports.of_programs[1:][on_node.index(worker.name) :: len(on_node)])


def cancel_without_runners(
    jobs: NodeJobs, name: str, failed: Mapping[str, ClusterError]
) -> ClusterError:
    """Cancel the job whose runners did not start; return the error that names them."""
    with waiting_for(f"ending job {name}"):
        jobs.cancel(name)
    return ClusterError("\n".join(map(str, failed.values())) + f"\njob {name} was cancelled")


def start_runner(
    node: Connector, places: NodePlaces, task: ProgramTask, files: Mapping[str, Content]
) -> None:
    """Start the runner of one member as a unit of its node, with these files in its folder.

    Raises ClusterError.
    """
    job_folder = new_folder(node, places, TASK_JOB, files)
    if isinstance(job_folder, CommandResult):
        raise ClusterError(
            f"{node.name}: no program can be started: {' '.join(job_folder.last_lines)}"
        )
    begun = begin(node, job_folder)
    if not begun.ok:
        output_tail = node.run(["tail", "-n", "3", str(job_folder.output)], user=places.user)
        why = " ".join((*output_tail.text.split(), *begun.last_lines))
        raise ClusterError(f"{node.name}: the runner of {task.member} did not begin: {why}")


SEARCH_REQUIREMENTS = Path(__file__).with_name("search_requirements.txt")
SHARED_KEYS = ("jobs.train.data", "jobs.train.app")
"""Keys of what nodes have once for all runs: prepared windows, and an app."""


@dataclass(frozen=True)
class SweepRequest:
    """A sweep that was read and checked: its file, its content, and the inventory."""

    file: Path
    sweep: "SweepFile"
    usual: "Inventory"

    @property
    def on_roles(self) -> bool:
        """Whether its runs need the cluster's roles."""
        return self.sweep.placement == "cluster"

    @property
    def files(self) -> Mapping[str, bytes]:
        """The files that travel with its job."""
        return {SWEEP: self.file.read_bytes()}


def search_flags(request: SweepRequest, environment: Callable[[Path], str]) -> tuple[str, ...]:
    """Flags of the process that drives a search, which needs Optuna; none without a search.

    `environment` makes the one of a requirements file there and returns its key, empty where
    nothing is missing.
    """
    if request.sweep.search is None:
        return ()
    key = environment(SEARCH_REQUIREMENTS)
    if key:
        return ("--driver-environment", key)
    return ()


def refuse_on_nodes(request: SweepRequest) -> None:
    """Raise UsageError for what only a cluster on one host can do."""
    keys = {key for choice in request.sweep.choices for key in choice.settings}
    if request.sweep.search is not None:
        keys |= request.sweep.search.space.keys()
    varied = sorted(key for key in keys if key.startswith(SHARED_KEYS))
    if varied:
        if varied[0] == "jobs.train.app":
            what = "one app for all runs"
        else:
            what = "the recordings once, prepared"
        raise UsageError(
            f"{request.sweep.file}: {varied[0]}: with `connection: ssh` the nodes get {what}: write"
            " it below `base:`"
        )


def answering(fleet: Fleet, nodes: Sequence[str]) -> list[str]:
    """Return the nodes that answer: a sweep begins without the others."""
    answers = fleet.each(lambda node: node.open(), nodes)
    return [name for name in nodes if not isinstance(answers[name], ClusterError)]


def begin_on_workers(
    jobs: NodeJobs,
    fleet: Fleet,
    request: SweepRequest,
    flags: Sequence[str],
    app: AppOfJob = NO_APP,
    environments: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Submit the job that drives the sweep, and start a runner on each worker's node; the job's id.

    The driver hands the `app` to the nodes; `environments` has the key of its packages on each,
    where it has some. A node that starts no runner is a line; without any the job is cancelled.
    Raises ClusterError.
    """
    token = secrets.token_hex(32)
    name = jobs.submit("sweep", flags, app=app.files, token=token, files=request.files)
    inventory = jobs.inventory
    tasks = program_tasks(inventory, MEMBERS[0], token, environments, own_digests())
    with waiting_for("starting the runners on the workers' nodes"):
        content = {"inventory.yaml": inventory.path.read_bytes()}
        failed = start_runners(fleet, jobs.places, tasks, content)
    if len(failed) == len({worker.node for worker, _ in tasks}):
        raise cancel_without_runners(jobs, name, failed)
    for problem in failed.values():
        say(f"{problem}; the sweep does without it", error=True)
    return name
