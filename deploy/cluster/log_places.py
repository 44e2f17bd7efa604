"""Where the logs of a cluster are: files of this machine, or journals and files of its nodes. Pure."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from deploy.cluster.places import NodePlaces
from deploy.common.state_folder import StateFolder

if TYPE_CHECKING:
    from cluster.inventory import Inventory


@dataclass(frozen=True)
class LogPlace:
    """Where lines are on a node: a file, units in the journal, or the log of a coordinator's run.

    `name` is the process that writes them (`worker:3`), empty for the rest of a node. `unit` is a pattern of units.
    `runs` is a folder of runs; with `jobs`, a node's folder of jobs, the latest job decides which run is the present
    one. `user` is the account that reads the file; without one it is the account that is logged in.
    """

    name: str
    node: str
    path: Path | None = None
    unit: str | None = None
    runs: str | None = None
    jobs: str | None = None
    user: str | None = None


def of_supervisor(inventory: "Inventory", folder: StateFolder) -> list[LogPlace]:
    """A file for the supervisor and for each role that it keeps; the coordinator's in the folder of its run."""
    roles = [task for task in inventory.tasks() if task.role != "coordinator"]
    (coordinator,) = inventory.of_role("coordinator")
    return [
        LogPlace("supervisor", coordinator.node, folder.log("supervisor")),
        *(LogPlace(task.name, task.node, folder.log(task.name)) for task in roles),
        LogPlace(coordinator.name, coordinator.node, runs=str(Path(inventory.runs).absolute())),
    ]


def of_systemd(inventory: "Inventory", places: NodePlaces = NodePlaces()) -> list[LogPlace]:  # noqa: B008  frozen
    """Units in each node's journal; the coordinator's run beside its unit's own lines."""
    found = [LogPlace("", node.name, unit="pscluster-*") for node in inventory.nodes]
    for task in inventory.tasks():
        if task.role == "coordinator":
            found.append(LogPlace(task.name, task.node, unit="pscluster-job@*"))
            runs, jobs = places.runs(inventory), f"{places.state}/jobs"
            found.append(LogPlace(task.name, task.node, runs=runs, jobs=jobs, user=places.user))
        else:
            found.append(LogPlace(task.name, task.node, unit=f"pscluster-{task.role}-{task.index}.service"))
    return found
