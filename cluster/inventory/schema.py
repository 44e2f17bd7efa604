"""The inventory itself: the keys of the file, and the cluster they describe."""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from cluster.inventory.deployment import Deployment, SshSettings, Storage
from cluster.inventory.fields import Name, Section, Text
from cluster.inventory.jobs import Jobs
from cluster.inventory.logs import Logs
from cluster.inventory.monitor import Monitor
from cluster.inventory.nodes import Interface, Node, Page, Ports
from cluster.inventory.task import RoleName, Task
from cluster.inventory.tasks import expand

MAXIMUM_NODES = 1024

Connection = Literal["ssh", "local"]


def _version(value: object) -> object:
    if type(value) is not int or value != 1:  # Literal[1] alone takes true and 1.0 for it
        remedy = "write `schema: 1`, or use the version of pscluster that the file was written for"
        raise PydanticCustomError("schema_version", "this version reads schema 1", {"remedy": remedy})
    return value


class Description(Section):
    """The keys of an inventory file."""

    schema_: Annotated[Literal[1], BeforeValidator(_version)] = Field(
        alias="schema", description="version of this format"
    )
    cluster: Name = Field(description="name of the cluster; names its state folder and its metrics")
    connection: Connection = Field(
        "local", description="`local`: every role is a process of this machine; `ssh`: nodes are reached over SSH"
    )
    interface: Interface | None = Field(
        None, description="network interface that carries the cluster's traffic, for nodes that give none"
    )
    allow_public: bool = Field(
        False,
        description="permit addresses anyone on the Internet can reach; TensorFlow's port runs any graph it is sent",
    )
    ports: Ports = Ports()
    page: Page = Page()
    nodes: tuple[Node, ...] = Field(min_length=1, max_length=MAXIMUM_NODES, description="the machines")
    storage: Storage | None = Field(None, description="the folder all nodes share over NFS; null shares none")
    ssh: SshSettings = SshSettings()
    deployment: Deployment = Deployment()
    monitor: Monitor = Monitor()
    logging: Logs = Logs()
    runs: Text = Field(
        "runs", description="folder that gets one folder for each job run; relative to the working folder"
    )
    jobs: Jobs = Jobs()


class Inventory(Description):
    """A cluster that was found to be consistent. `cluster.inventory.load` makes it."""

    path: Path
    hosts: Mapping[str, str]
    """Announced IPv4 address of each node, by node name."""

    @cached_property
    def _tasks(self) -> tuple[Task, ...]:
        return expand(self.nodes, self.ports, self.hosts)

    def tasks(self) -> tuple[Task, ...]:
        """Every role process: parameter servers first, then workers, then the coordinator, each counted from 0."""
        return self._tasks

    @property
    def shared_folder(self) -> str | None:
        """Where every node finds what all share; None where nothing is mounted."""
        return None if self.storage is None or self.connection == "local" else f"{self.storage.mount}/shared"

    def of_role(self, role: RoleName) -> tuple[Task, ...]:
        """The role processes of one role, in order of their index."""
        return tuple(task for task in self._tasks if task.role == role)

    def task(self, role: RoleName, index: int) -> Task:
        """One role process. Raises KeyError when the cluster has no such task."""
        for task in self._tasks:
            if task.role == role and task.index == index:
                return task
        raise KeyError(f"{role}:{index} is not in {[task.name for task in self._tasks]}")

    @property
    def monitor_node(self) -> str | None:
        """Name of the node with the role `monitor`; None without one."""
        return next((node.name for node in self.nodes for entry in node.roles if entry.role == "monitor"), None)

    def node(self, name: str) -> Node:
        """One machine by its name. Raises KeyError when the cluster has no such node."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(f"{name} is not in {[node.name for node in self.nodes]}")
