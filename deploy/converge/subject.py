"""A subject of a deployment: what is wanted, what a node answers, the changes and their steps.

Pure data.
"""

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from deploy.cluster.places import SharedFolders, publisher, shared_folders
from deploy.cluster.services import ClusterStatus, kept_tasks
from deploy.converge.machine_facts import MachineFacts, Questions, RoleMemory, Texts

if TYPE_CHECKING:
    from core.inventory import Inventory, Task
    from deploy.cluster.login import TunnelKeys
    from deploy.converge.code import ReleaseChoice
    from deploy.converge.publication import Publication
    from deploy.release.wheelhouse import Wheelhouse


@dataclass(frozen=True)
class Shell:
    """A script for `sh`, run as root. `hint` is what a person could do when it fails."""

    what: str
    script: str
    deadline_seconds: float = 60.0
    hint: str = ""
    stdin: Path | None = None
    """A file that the script reads; the script then comes as an argument."""


@dataclass(frozen=True)
class Upload:
    """A file written whole; `owner` may be the service account, root otherwise."""

    what: str
    content: bytes | Path | Callable[[], bytes]
    """The content, or a function that makes it when the step's turn has come."""
    path: str
    mode: int = 0o644
    owner: str = "root"
    deadline_seconds: float = 60.0


@dataclass(frozen=True)
class Reconnect:
    """A new SSH connection: whether the way in is still open."""

    what: str
    deadline_seconds: float = 20.0


@dataclass(frozen=True)
class Learn:
    """A script that root runs, and what receives its output; that may raise ClusterError."""

    what: str
    script: str
    receive: Callable[[str], None]
    deadline_seconds: float = 30.0


@dataclass(frozen=True)
class PublishedFile:
    """A file of ours that is to lie in a published folder."""

    name: str
    path: Path
    sha256: str
    size_bytes: int


@dataclass(frozen=True)
class Publish:
    """A folder for all nodes: what it lacks is sent, and all of it is checked there.

    Then it is complete.
    """

    what: str
    folder: str
    files: tuple[PublishedFile, ...]
    user: str | None
    """The account that may write there; None is root."""
    deadline_seconds: float = 1800.0

    @property
    def size_bytes(self) -> int:
        """The size of all files."""
        return sum(file.size_bytes for file in self.files)


class DeploymentDisplay:
    """What a person sees of a deployment while it runs: nothing here.

    Any thread may call every method.
    """

    def line(self, node: str, line: str) -> None:
        """Something was done on `node`, or (without a node) is being done."""

    def stand_still(self) -> None:
        """Move nothing any more: a person is asked. What comes after it is lines."""

    def roles(self, status: ClusterStatus) -> None:
        """The roles as they are now, while they start."""

    def warning(self, line: str) -> None:
        """A line to show once the deployment has ended."""


SILENT = DeploymentDisplay()


@dataclass(frozen=True)
class Call:
    """Something that this process does for a node, such as asking a service manager.

    It raises ClusterError.
    """

    what: str
    action: Callable[[DeploymentDisplay], None]
    deadline_seconds: float = 60.0


Step = Shell | Upload | Learn | Reconnect | Publish | Call


@dataclass(frozen=True)
class Change:
    """One thing that is not as the inventory wants it.

    `diff` shows the texts of a file, where there are any.
    """

    kind: str
    subject: str
    action: str
    detail: str
    steps: tuple[Step, ...]
    diff: str = ""
    runs_jobs: bool = False
    """Whether a start that makes this change runs the inventory's jobs after it."""

    def to_json(self) -> dict[str, Any]:
        """Plain values for `--json`, without the steps."""
        return {
            "kind": self.kind,
            "subject": self.subject,
            "action": self.action,
            "detail": self.detail,
        } | ({"diff": self.diff} if self.diff else {})


Changes = Iterator[Change]
"""What to change of a node, in order; nothing where all is so already."""


def text_diff(path: str, before: bytes | None, after: bytes) -> str:
    """A unified diff of two texts, empty where one is no text."""
    try:
        if before is None:
            old = []
        else:
            old = before.decode().splitlines()
        new = after.decode().splitlines()
    except UnicodeDecodeError:
        return ""
    return "\n".join(
        difflib.unified_diff(
            old, new, f"{path} on the node", f"{path} of the inventory", lineterm=""
        )
    )


DRIFT = "drift"
"""The topic of what was changed on a node after its deployment; `status` shows it too."""
Found = Iterator[tuple[Literal["ok", "warning", "problem"], str, str]]
"""Level, topic and line of each finding."""


NOT_ESTIMATED = RoleMemory(0, 0, 0)


@dataclass(frozen=True)
class DeploymentSpec:
    """The inventory, the release, and what is published for the nodes; `of_node` is for one."""

    inventory: "Inventory"
    release: "ReleaseChoice"
    publications: "tuple[Publication, ...]" = ()
    wheelhouses: "Mapping[str, Wheelhouse]" = field(default_factory=dict)
    """The wheelhouses by key of the environment, where a node lacks one."""
    token: str | None = field(default=None, repr=False)
    """The cluster's token; None where it is not known, and then nodes keep what they have."""
    keys: "TunnelKeys | None" = None
    """The nodes' public keys of WireGuard."""
    takes_part: frozenset[str] = frozenset()
    """The nodes of this run that are fit."""
    name: str = ""
    """The node; empty for all of them."""
    memory: RoleMemory = NOT_ESTIMATED
    """What its checks count for its roles."""
    publishes_bytes: int = 0
    """What its checks count for what has to be published yet."""

    def of_node(self, name: str) -> Self:
        """Return what is wanted of one node."""
        return replace(self, name=name)

    @property
    def folders(self) -> SharedFolders:
        """The shared folders."""
        return shared_folders(self.inventory)

    @property
    def publisher(self) -> str:
        """The node through which folders are published."""
        return publisher(self.inventory)

    @property
    def tasks(self) -> "tuple[Task, ...]":
        """The parameter servers and workers of the node."""
        return tuple(task for task in kept_tasks(self.inventory) if task.node == self.name)

    @property
    def all_tasks(self) -> "tuple[Task, ...]":
        """The roles of the node, the coordinator included."""
        return tuple(task for task in self.inventory.tasks() if task.node == self.name)

    @property
    def stores(self) -> bool:
        """Whether the node is the storage server."""
        return self.name == self.folders.server

    @property
    def watches(self) -> bool:
        """Whether the node has the role `monitor`."""
        return self.name == self.inventory.monitor_node

    @property
    def recognises(self) -> bool:
        """Whether the node has the role `service`."""
        return self.name in self.inventory.service_nodes

    @property
    def coordinates(self) -> bool:
        """Whether the coordinator runs there."""
        return any(task.node == self.name for task in self.inventory.of_role("coordinator"))

    @property
    def runs_jobs(self) -> bool:
        """Whether jobs run there: the coordinator's, or the part of a program beside a worker."""
        works = any(task.node == self.name for task in self.inventory.of_role("worker"))
        return works or self.coordinates

    @property
    def pinned_key(self) -> str | None:
        """The node's pinned public key of WireGuard; None also where it is to be replaced."""
        if self.keys is None or self.name in self.keys.replaced:
            return None
        return self.keys.known.get(self.name)

    def environment(self, facts: MachineFacts) -> str | None:
        """Return the key of the node's environment; None where its Python is one without wheels."""
        return self.release.environment_for(facts, serves=self.recognises)


def words(text: str) -> Texts:
    """Return the words of a section."""
    return tuple(text.split())


@dataclass(frozen=True)
class Subject:
    """One subject; a part that it lacks says nothing.

    A new step of a deployment is one file with a `Subject`, and its line in `subjects.SUBJECTS`.
    """

    name: str
    phase: str
    """The phase that its `plan` belongs to."""
    script: str = ""
    """Shell that prints `section NAME` and the answer. A question that depends on the inventory
    stands in `ask.sh`."""
    facts: Mapping[str, Callable[[str], Any]] = field(default_factory=dict)
    """Each fact by its name, which is its section's, with the reader of what the section says. A
    name that is no field of `MachineFacts` goes into `MachineFacts.more`. A reader may raise
    ValueError."""
    check: Callable[[DeploymentSpec, MachineFacts], Found] = lambda spec, facts: iter(())
    """The check for what would make a start fail, and for what else is worth knowing."""
    plan: Callable[[DeploymentSpec, MachineFacts], Changes] = lambda spec, facts: iter(())
    """What to change of a node; within a phase the order of `SUBJECTS` counts."""
    undo: str = ""
    """Shell for `reset`, which ignores its return code. It may add to `notes` and `problems`."""
    questions: Callable[[DeploymentSpec], Questions] = lambda spec: Questions()
    """The files, units and packages of the node that its plan compares."""
