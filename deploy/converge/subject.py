"""A subject of a deployment: what a node is asked about it, what the answer means, what is checked, and the undo."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from deploy.cluster.places import shared_folders
from deploy.converge.change import Resource
from deploy.converge.machine_facts import MachineFacts, Questions
from deploy.converge.memory_estimate import RoleMemory
from deploy.converge.publication import publisher
from deploy.render.firewall import closed_ports

if TYPE_CHECKING:
    from cluster.inventory import Inventory, Monitor, Task

Found = Iterator[tuple[Literal["ok", "warning", "problem"], str, str]]
"""Level, topic and line of each finding."""


@dataclass(frozen=True)
class NodeWish:
    """What the inventory wants of one node, as far as the checks need it."""

    name: str
    address: str
    interface: str | None
    tasks: "tuple[Task, ...]"
    memory: RoleMemory
    service_uid: int
    environment_key: str | None
    monitor: "Monitor | None" = None
    """Its settings where the node has the role."""
    shared: str | None = None
    """The shared folder as it is published to, where the node is the one that does."""
    export: str | None = None
    """The folder that it exports, where it is the storage server."""
    publishes_bytes: int = 0
    """What has to be published yet."""
    ssh_port: int = 22
    closed_ports: frozenset[int] = frozenset()
    """Those that the firewall will keep for the nodes."""

    @classmethod
    def of(
        cls,
        inventory: "Inventory",
        name: str,
        memory: RoleMemory,
        environment_key: str | None,
        publishes_bytes: int = 0,
    ) -> "NodeWish":
        """The wish for the node called `name`."""
        node, folders = inventory.node(name), shared_folders(inventory)
        return cls(
            name=name,
            address=inventory.hosts[name],
            interface=node.interface or inventory.interface,
            tasks=tuple(task for task in inventory.tasks() if task.node == name),
            memory=memory,
            service_uid=inventory.deployment.service_uid,
            environment_key=environment_key,
            monitor=inventory.monitor if inventory.monitor_node == name else None,
            shared=f"{folders.publish_folder} ({folders.source})" if publisher(inventory) == name else None,
            export=folders.export if folders.server == name else None,
            publishes_bytes=publishes_bytes,
            ssh_port=node.ssh.port or inventory.ssh.port,
            closed_ports=closed_ports(inventory) if inventory.deployment.firewall else frozenset(),
        )


@dataclass(frozen=True)
class Answer:
    """A node's answer by sections, and when it was asked and answered by our clock, in seconds since the epoch."""

    sections: Mapping[str, str]
    asked_seconds: float
    answered_seconds: float


def _no_script(questions: Questions) -> str:
    return ""


def _no_facts(answer: Answer) -> Mapping[str, object]:
    return {}


def _no_findings(wish: NodeWish, facts: MachineFacts) -> Found:
    yield from ()


def _no_resources(inventory: "Inventory", node: str, facts: MachineFacts) -> Sequence[Resource]:
    return ()


def _no_undo() -> str:
    return ""


@dataclass(frozen=True)
class Subject:
    """One subject. A new deployment step is one file with a `Subject`, and its line in `subjects.SUBJECTS`."""

    name: str
    phase: str
    """The phase that its `resources` belong to."""
    script: Callable[[Questions], str] = _no_script
    """Shell that prints `section NAME` and the answer; see `fact_script`."""
    read: Callable[[Answer], Mapping[str, object]] = _no_facts
    """Fields of `MachineFacts` by name; any other name goes into `MachineFacts.more`. May raise ValueError."""
    check: Callable[[NodeWish, MachineFacts], Found] = _no_findings
    """What would make a start fail on the node, and what else is worth knowing."""
    resources: "Callable[[Inventory, str, MachineFacts], Sequence[Resource]]" = _no_resources
    """Resources of the node, after the phase's own. A subject whose order matters has none here:

    `desired` names its resources where they belong.
    """
    undo: Callable[[], str] = _no_undo
    """Shell for `reset`, which ignores its return code. It may add to `notes` and `problems`."""
