"""A subject of a deployment: what a node is asked about it, what the answer means, what is checked, and the undo."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from deploy.converge.change import Resource
from deploy.converge.machine_facts import MachineFacts, Questions
from deploy.converge.memory_estimate import RoleMemory

if TYPE_CHECKING:
    from cluster.inventory import Inventory, Monitor, Service, Task

Found = Iterator[tuple[Literal["ok", "warning", "problem"], str, str]]
"""Level, topic and line of each finding."""


@dataclass(frozen=True)
class NodeWish:
    """What the inventory wants of one node, for the checks."""

    inventory: "Inventory"
    name: str
    memory: RoleMemory
    environment_key: str | None
    publishes_bytes: int = 0
    """What has to be published yet."""

    @property
    def tasks(self) -> "tuple[Task, ...]":
        """The roles of the node, the coordinator included."""
        return tuple(task for task in self.inventory.tasks() if task.node == self.name)

    @property
    def monitor(self) -> "Monitor | None":
        """The monitor's settings where the node has this role."""
        return self.inventory.monitor if self.inventory.monitor_node == self.name else None

    @property
    def service(self) -> "Service | None":
        """The service's settings where the node has this role."""
        return self.inventory.service if self.name in self.inventory.service_nodes else None


@dataclass(frozen=True)
class NodeAnswer:
    """A node's answer by sections, and when it was asked and answered by our clock, in seconds since the epoch."""

    sections: Mapping[str, str]
    asked_seconds: float
    answered_seconds: float


def _no_script(questions: Questions) -> str:
    return ""


def _no_facts(answer: NodeAnswer) -> Mapping[str, object]:
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
    read: Callable[[NodeAnswer], Mapping[str, object]] = _no_facts
    """Fields of `MachineFacts` by name; any other name goes into `MachineFacts.more`. May raise ValueError."""
    check: Callable[[NodeWish, MachineFacts], Found] = _no_findings
    """What would make a start fail on the node, and what else is worth knowing."""
    resources: "Callable[[Inventory, str, MachineFacts], Sequence[Resource]]" = _no_resources
    """Resources of the node, after the phase's own. A subject whose order matters has none here:

    `desired` names its resources where they belong.
    """
    undo: Callable[[], str] = _no_undo
    """Shell for `reset`, which ignores its return code. It may add to `notes` and `problems`."""
