"""How tasks of an inventory become pods of Kubernetes: names, inventory, refusals. Pure.

A pod has no address of its own that stays. So each role gets a service of the pod's name, whose
address stays, and the inventory of the pods names these services.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import yaml

from core.ground.errors import UsageError

if TYPE_CHECKING:
    from core.inventory import Inventory, Task

_NAME = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
LONGEST_NAME = 40
"""The most characters of a cluster's name. A service's has 63 at most, and a StatefulSet labels its
pods with more words."""

STATE_FOLDER = "/var/lib/pscluster"
DATA_FOLDER = f"{STATE_FOLDER}/data"
RUNS_FOLDER = f"{STATE_FOLDER}/runs"
INVENTORY_FOLDER = "/etc/pscluster"
CREDENTIALS_FOLDER = "/run/secrets/pscluster"
"""The folder of the coordinator's token or a role's key, which no role reads once it serves."""
COORDINATOR_NODE = "coordinator"
"""The node of the coordinator in the pods' inventory. The Job's pod puts its own address there."""

_KEPT = ("schema", "cluster", "allow_public", "page", "logging")
"""The fields of an inventory that pods read as written; the rest is about machines."""


@dataclass(frozen=True)
class Pods:
    """The pods of a cluster."""

    cluster: str
    tasks: "tuple[Task, ...]"

    def service(self, task: "Task") -> str:
        """The service and the pod of a role: `thesis-worker-3`."""
        return f"{self.cluster}-{task.role}-{task.index}"

    def services(self, role: Literal["ps", "worker"]) -> tuple[str, ...]:
        """Return the services of all pods of a role, by their index."""
        return tuple(self.service(task) for task in self.tasks if task.role == role)


def pods_of(inventory: "Inventory") -> Pods:
    """The pods that an inventory of machines asks for.

    Raises UsageError, in one line, where they cannot be made.
    """
    where = inventory.path
    if not _NAME.fullmatch(inventory.cluster) or len(inventory.cluster) > LONGEST_NAME:
        raise UsageError(
            f"{where}: cluster: expected a name that Kubernetes takes, of lower-case letters,"
            f" digits and `-`, with a letter first and at most {LONGEST_NAME} characters, got"
            f" {inventory.cluster!r}"
        )
    if inventory.jobs.train.device.kind != "cpu":
        raise UsageError(
            f"{where}: jobs.train.device.kind: expected cpu, got"
            f" {inventory.jobs.train.device.kind}: the image has no TensorFlow for other devices"
        )
    if inventory.jobs.train.app is not None:
        raise UsageError(
            f"{where}: jobs.train.app: expected none, got {inventory.jobs.train.app}: no app is"
            " brought into pods"
        )
    node_roles: set[tuple[str, str]] = set()
    usual = {"ps": (inventory.ports.ps, inventory.ports.ps_metrics)}
    usual["worker"] = (inventory.ports.worker, inventory.ports.worker_metrics)
    for task in inventory.tasks():
        if (task.node, task.role) in node_roles:
            raise UsageError(
                f"{where}: nodes.{task.node}.roles: expected one {task.role}, got two: each becomes"
                " a pod with the cores of its node; keep one"
            )
        node_roles.add((task.node, task.role))
        ports = usual.get(task.role)
        if ports is not None and (task.port, task.metrics_port) != ports:
            raise UsageError(
                f"{where}: nodes.{task.node}.roles: expected the ports {ports[0]} and {ports[1]} of"
                f" `ports` for {task.name}, got {task.port} and {task.metrics_port}: the pods of"
                " one role are alike"
            )
    return Pods(inventory.cluster, inventory.tasks())


def pod_inventory(inventory: "Inventory", pods: Pods) -> str:
    """Return the inventory that the coordinator's pod reads, with a node for each pod."""
    written: dict[str, Any] = inventory.model_dump(mode="json", by_alias=True, exclude_unset=True)
    coordinator = inventory.of_role("coordinator")[0]
    ports: Mapping[str, int] = {
        **inventory.ports.model_dump(),
        "coordinator": coordinator.port,
        "coordinator_metrics": coordinator.metrics_port,
    }
    content = {name: written[name] for name in _KEPT if written.get(name)}
    content["connection"] = "ssh"
    content["ports"] = ports
    content["nodes"] = [
        {"name": pods.service(task), "address": pods.service(task), "roles": [task.role]}
        for task in pods.tasks
        if task.role != "coordinator"
    ]
    content["nodes"].append(
        {
            "name": COORDINATOR_NODE,
            "address": f"{pods.cluster}-coordinator",
            "roles": ["coordinator"],
        }
    )
    content["runs"] = RUNS_FOLDER
    content["jobs"] = {name: written["jobs"][name] for name in inventory.jobs.order}
    body: str = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=110)
    return (
        f"# Written by `fab deploy render kubernetes`: what the pods of cluster {pods.cluster}"
        f" read.\n{body}"
    )
