"""A subject of a deployment, what is wanted of a cluster and a node, and what a node answers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from deploy.cluster.places import SharedFolders, publisher, shared_folders
from deploy.cluster.services import kept_tasks
from deploy.converge.change import Resource
from deploy.converge.machine_facts import MachineFacts, Questions
from deploy.converge.memory_estimate import RoleMemory

if TYPE_CHECKING:
    from core.inventory import Inventory, Monitor, Service, Task
    from deploy.cluster.login import TunnelKeys
    from deploy.converge.code import ReleaseChoice
    from deploy.converge.publication import Publication
    from deploy.release.wheelhouse import Wheelhouse

DRIFT = "drift"
"""The topic of what was changed on a node after its deployment; `status` shows it too."""
Found = Iterator[tuple[Literal["ok", "warning", "problem"], str, str]]
"""Level, topic and line of each finding."""


@dataclass(frozen=True)
class DeploymentSpec:
    """The inventory, the release, and what is published for the nodes."""

    inventory: "Inventory"
    release: "ReleaseChoice"
    publications: "tuple[Publication, ...]" = ()
    wheelhouses: "Mapping[str, Wheelhouse]" = field(default_factory=dict)
    """By the key of the environment, where a node lacks one."""
    token: str | None = field(default=None, repr=False)
    """The cluster's token; None where it is not known, and then nodes keep what they have."""
    keys: "TunnelKeys | None" = None
    """The nodes' public keys of WireGuard."""
    takes_part: frozenset[str] = frozenset()
    """The nodes of this run that are fit."""

    @property
    def folders(self) -> SharedFolders:
        """The shared folders."""
        return shared_folders(self.inventory)

    @property
    def publisher(self) -> str:
        """The node through which folders are published."""
        return publisher(self.inventory)

    def tasks(self, node: str) -> "tuple[Task, ...]":
        """Return the parameter servers and workers of a node."""
        return tuple(task for task in kept_tasks(self.inventory) if task.node == node)

    def environment(self, node: str, facts: MachineFacts) -> str | None:
        """Return the key of a node's environment; None where its Python is one without wheels."""
        return self.release.environment_for(facts, serves=self.recognises(node))

    def stores(self, node: str) -> bool:
        """Whether the node is the storage server."""
        return node == self.folders.server

    def watches(self, node: str) -> bool:
        """Whether the node has the role `monitor`."""
        return node == self.inventory.monitor_node

    def recognises(self, node: str) -> bool:
        """Whether the node has the role `service`."""
        return node in self.inventory.service_nodes

    def coordinates(self, node: str) -> bool:
        """Whether the coordinator runs there."""
        return any(task.node == node for task in self.inventory.of_role("coordinator"))

    def runs_jobs(self, node: str) -> bool:
        """Whether jobs run there: the coordinator's, or the part of a program beside a worker."""
        works = any(task.node == node for task in self.inventory.of_role("worker"))
        return works or self.coordinates(node)


@dataclass(frozen=True)
class NodeSpec:
    """What the inventory wants of one node, for the checks."""

    inventory: "Inventory"
    name: str
    memory: RoleMemory
    environment_key: str | None
    publishes_bytes: int = 0
    """What has to be published yet."""
    tunnel_key: str | None = None
    """The node's pinned public key of WireGuard; None also where it is to be replaced."""

    @property
    def tasks(self) -> "tuple[Task, ...]":
        """The roles of the node, the coordinator included."""
        return tuple(task for task in self.inventory.tasks() if task.node == self.name)

    @property
    def monitor(self) -> "Monitor | None":
        """The monitor's settings where the node has this role."""
        if self.inventory.monitor_node == self.name:
            return self.inventory.monitor
        return None

    @property
    def service(self) -> "Service | None":
        """The service's settings where the node has this role."""
        if self.name in self.inventory.service_nodes:
            return self.inventory.service
        return None


@dataclass(frozen=True)
class NodeAnswer:
    """A node's answer by sections, and our clock when it was asked and when it had answered.

    Times are seconds since the epoch.
    """

    sections: Mapping[str, str]
    asked_seconds: float
    answered_seconds: float


def _no_script(questions: Questions) -> str:
    return ""


def _no_facts(answer: NodeAnswer) -> Mapping[str, object]:
    return {}


def _no_findings(node: NodeSpec, facts: MachineFacts) -> Found:
    yield from ()


def _no_resources(spec: DeploymentSpec, node: str, facts: MachineFacts) -> Sequence[Resource]:
    return ()


def _no_undo() -> str:
    return ""


def _no_questions(spec: DeploymentSpec, node: str) -> Questions:
    return Questions()


@dataclass(frozen=True)
class Subject:
    """One subject; a part that it lacks says nothing.

    A new step of a deployment is one file with a `Subject`, and its line in `subjects.SUBJECTS`.
    """

    name: str
    phase: str
    """The phase that its `resources` belong to."""
    script: Callable[[Questions], str] = _no_script
    """Shell that prints `section NAME` and the answer; see `fact_script`."""
    read: Callable[[NodeAnswer], Mapping[str, object]] = _no_facts
    """Fields of `MachineFacts` by name; any other name goes into `MachineFacts.more`. May raise
    ValueError."""
    check: Callable[[NodeSpec, MachineFacts], Found] = _no_findings
    """What would make a start fail on the node, and what else is worth knowing."""
    resources: Callable[[DeploymentSpec, str, MachineFacts], Sequence[Resource]] = _no_resources
    """What the spec wants of the node; within a phase the order of `SUBJECTS` counts."""
    undo: Callable[[], str] = _no_undo
    """Shell for `reset`, which ignores its return code. It may add to `notes` and `problems`."""
    questions: Callable[[DeploymentSpec, str], Questions] = _no_questions
    """The files, units and packages of the node that its resources compare."""
