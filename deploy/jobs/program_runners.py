"""A program on all workers' nodes: the operator starts its runner on each, as a unit, before the program begins.

No node can log in on another. The runners connect to the job on the coordinator's node and do what it asks
(`cluster/programs/lead.py`), so that the program outlives the operator's connection.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from cluster.errors import ClusterError
from deploy.cluster.connector import Connector
from deploy.cluster.fleet import Fleet
from deploy.cluster.places import NodePlaces
from deploy.jobs.node_job.program_task import NAME, TASK, ProgramTask
from deploy.jobs.node_job.records import JobsRoot, is_job_id
from deploy.jobs.node_jobs import KEPT_JOBS
from deploy.jobs.program_files import ARCHIVE, packed
from deploy.jobs.request import first_id
from deploy.render.units import unit_of_job
from deploy.rooted.commands import new_job

if TYPE_CHECKING:
    from cluster.inventory import Inventory, Task
    from cluster.programs.wish import ProgramWish

_SUBMIT_SECONDS, _START_SECONDS = 60.0, 150.0


def start_runners(
    fleet: Fleet, inventory: "Inventory", wish: "ProgramWish", token: str,
    places: NodePlaces = NodePlaces(),  # noqa: B008  frozen
    environments: Mapping[str, str] = MappingProxyType({}),
) -> Mapping[str, ClusterError]:  # fmt: skip
    """Start a runner for each worker on its node; the nodes where that failed, with the reason.

    `environments` has the key of a node's packages besides, where it has some.
    """
    archive = packed(Path(wish.program))
    tasks = program_tasks(inventory, wish, token, environments)
    nodes = list(dict.fromkeys(task.node for task in inventory.of_role("worker")))

    def start(node: Connector) -> None:
        for of_worker, task in tasks:
            if of_worker.node == node.name:
                start_runner(node, places, task, {TASK: task.to_bytes(), ARCHIVE: archive})

    results = fleet.each(start, nodes)
    return {name: result for name, result in results.items() if isinstance(result, ClusterError)}


def program_tasks(
    inventory: "Inventory", wish: "ProgramWish", token: str,
    environments: Mapping[str, str] = MappingProxyType({}),
) -> Sequence[tuple["Task", ProgramTask]]:  # fmt: skip
    """What each worker's runner has to know. Runners of one node get ports apart from each other's. Pure."""
    lead, made = lead_of(inventory), []
    for task in inventory.of_role("worker"):
        environment = environments.get(task.node, "")
        made.append((task, ProgramTask(lead, token, task.name, ports_of(inventory, task), wish.name, environment)))
    return made


def lead_of(inventory: "Inventory") -> str:
    """Where the job on the coordinator's node waits for its runners: `host:port`."""
    return f"{inventory.task('coordinator', 0).host}:{inventory.ports.of_programs[0]}"


def ports_of(inventory: "Inventory", worker: "Task") -> Sequence[int]:
    """The ports for programs of one worker: those of its node, shared with the other workers there."""
    on_node = [one.name for one in inventory.of_role("worker") if one.node == worker.node]
    return tuple(inventory.ports.of_programs[1:][on_node.index(worker.name) :: len(on_node)])


def start_runner(node: Connector, places: NodePlaces, task: ProgramTask, files: Mapping[str, bytes]) -> None:
    """Start the runner of one member as a unit of its node, with these files in its folder. Raises ClusterError."""
    root = JobsRoot(Path(places.state))
    encoded = {name: base64.b64encode(content).decode() for name, content in files.items()}
    made = node.run(
        new_job(str(root.jobs), places.user, KEPT_JOBS, first_id(NAME, datetime.now(UTC))),
        stdin=json.dumps(encoded).encode(),
        deadline_seconds=_SUBMIT_SECONDS,
        root=True,
    )
    name = made.text.strip().rpartition("\n")[2]  # a start file of the account may print before it
    if not made.ok or not is_job_id(name):
        raise ClusterError(f"{node.name}: no program can be started: {' '.join(made.last_lines)}")
    unit = unit_of_job(name)
    begun = node.run(["systemctl", "start", unit], deadline_seconds=_START_SECONDS, root=True)
    if not begun.ok:
        said = node.run(["tail", "-n", "3", str(root.job(name).output)], user=places.user)
        why = " ".join((*said.text.split(), *begun.last_lines))
        raise ClusterError(f"{node.name}: the runner of {task.member} was not begun: {why}")
