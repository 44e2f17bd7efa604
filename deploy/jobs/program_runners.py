"""A program on all workers' nodes: its runner starts on each before the program begins.

No node can log in on another. The runners connect to the job on the coordinator's node and do what
it asks (`cluster/programs/lead.py`), so that the program outlives the operator's connection.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from cluster.programs.frames import key_of_runner
from core.ground.errors import ClusterError
from deploy.cluster.connector import CommandResult, Connector
from deploy.cluster.fleet import Fleet
from deploy.cluster.places import NodePlaces
from deploy.common.waiting import waiting_for
from deploy.jobs.node_job.program_task import NAME, TASK, ProgramTask
from deploy.jobs.node_jobs import NodeJobs, begin, new_folder

if TYPE_CHECKING:
    from core.inventory import Inventory, Task


def start_runners(
    fleet: Fleet,
    places: NodePlaces,
    tasks: Sequence[tuple["Task", ProgramTask]],
    files: Mapping[str, bytes],
) -> Mapping[str, ClusterError]:
    """Start each runner on its worker's node with these files.

    Returns the nodes where that failed, with the reason.
    """

    def start(node: Connector) -> None:
        for of_worker, task in tasks:
            if of_worker.node == node.name:
                start_runner(node, places, task, {TASK: task.to_bytes(), **files})

    results = fleet.each(start, list(dict.fromkeys(of_worker.node for of_worker, _ in tasks)))
    return {name: result for name, result in results.items() if isinstance(result, ClusterError)}


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


def ports_of(inventory: "Inventory", worker: "Task") -> Sequence[int]:
    """Return one worker's share of the ports for programs of its node.

    The workers of a node divide them.
    """
    on_node = [task.name for task in inventory.of_role("worker") if task.node == worker.node]
    return tuple(inventory.ports.of_programs[1:][on_node.index(worker.name) :: len(on_node)])


def cancelled(jobs: NodeJobs, name: str, failed: Mapping[str, ClusterError]) -> ClusterError:
    """Cancel the job whose runners did not start; return the error that names them."""
    with waiting_for(f"ending job {name}"):
        jobs.cancel(name)
    return ClusterError("\n".join(map(str, failed.values())) + f"\njob {name} was cancelled")


def start_runner(
    node: Connector, places: NodePlaces, task: ProgramTask, files: Mapping[str, bytes]
) -> None:
    """Start the runner of one member as a unit of its node, with these files in its folder.

    Raises ClusterError.
    """
    job_folder = new_folder(node, places, NAME, files)
    if isinstance(job_folder, CommandResult):
        raise ClusterError(
            f"{node.name}: no program can be started: {' '.join(job_folder.last_lines)}"
        )
    begun = begin(node, job_folder)
    if not begun.ok:
        output_tail = node.run(["tail", "-n", "3", str(job_folder.output)], user=places.user)
        why = " ".join((*output_tail.text.split(), *begun.last_lines))
        raise ClusterError(f"{node.name}: the runner of {task.member} was not begun: {why}")
