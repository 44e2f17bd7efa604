"""The inventory itself: the keys of the file, its jobs, and the cluster they describe."""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import (
    BeforeValidator,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    model_validator,
)

from core.inventory import RoleName, Task
from core.inventory.fields import Name, Section, Seed, Text, are_distinct, invalid, word_or_number
from core.inventory.nodes import Interface, Node, Page, Ports, placed
from core.inventory.sections import (
    Deployment,
    Logs,
    Monitor,
    Service,
    SshSettings,
    Storage,
    Transport,
    Wireguard,
)
from core.inventory.training import TrainJob

EACH_GROUP = "groups"
MOST_FOLDS = 10_000
MOST_SEEDS = 1000
LARGEST_SEED = 2**31 - 1


def _seeds(value: object) -> object:
    """Return the seeds: so many from 0 on, or those listed."""
    if type(value) is int and 1 <= value <= MOST_SEEDS:
        return tuple(range(value))
    if not are_distinct(value, 0, LARGEST_SEED) or len(value) > MOST_SEEDS:
        raise invalid(
            "expected how many seeds, or a list of whole numbers from 0 to"
            f" {LARGEST_SEED}, each once",
            "write e.g. 5 or [0, 3, 7]",
        )
    return value


Folds: TypeAlias = Annotated[
    int | Literal["groups"],
    word_or_number(EACH_GROUP, 2, MOST_FOLDS, "write e.g. 5, or groups for one fold a group"),
]
Seeds: TypeAlias = Annotated[tuple[int, ...], BeforeValidator(_seeds)]


class CrossValidationJob(Section):
    """Cross-validation of what `train` describes, over the training people alone.

    Nothing of the test set is read.
    """

    folds: Folds = Field(
        5,
        description=(
            "how many, of whole groups such as people or devices; `groups` leaves out one group at"
            " a time"
        ),
    )
    seeds: Seeds = Field(
        (0,), description="of the trainings: how many, from 0 on, or a list; each trains every fold"
    )
    split_seed: Seed = Field(
        0, description="of the draw of groups into folds, the same for all seeds"
    )


JobName = Literal["pi", "train", "cv", "evaluate"]


class PiJob(Section):
    """Monte Carlo estimation of pi; the samples per second of each node are its calibration."""

    samples: int = Field(100_000_000, ge=1, le=10**15, description="random points of the whole job")
    chunk_samples: int = Field(
        8_000_000, ge=1, le=10**9, description="points of one dispatch to one worker"
    )
    seed: Seed = Field(0, description="of the random streams, one for each chunk")


class EvaluateJob(Section):
    """Accuracy and the other figures of a trained model on the test set.

    The workers compute them.
    """

    run: Text | None = Field(
        None, description="folder of the training run to evaluate; null is the newest one"
    )


class Jobs(Section):
    """What `start` runs once the roles are ready, in the order written.

    A job not written can still be run by name.
    """

    pi: PiJob = PiJob()
    train: TrainJob = TrainJob()
    cv: CrossValidationJob = CrossValidationJob()
    evaluate: EvaluateJob = EvaluateJob()
    _order: tuple[JobName, ...] = PrivateAttr(())

    @property
    def order(self) -> tuple[JobName, ...]:
        """Names of the jobs the inventory lists, first to run first."""
        return self._order

    @model_validator(mode="wrap")
    @classmethod
    def _remember_order(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        jobs = handler(value)
        if isinstance(value, dict):
            jobs._order = tuple(name for name in value if name in cls.model_fields)
        return jobs


THIS_MACHINE = "this machine"


MAXIMUM_NODES = 1024

Connection = Literal["ssh", "local"]


def _version(value: object) -> object:
    if type(value) is not int or value != 1:  # Literal[1] alone takes true and 1.0 for it
        remedy = "write `schema: 1`, or use the version of pscluster that the file was written for"
        raise invalid("this version reads schema 1", remedy)
    return value


def _name_alone(value: object) -> object:
    if isinstance(value, Mapping) and "transport" in value:
        remedy = "write `cluster: NAME`, and beside it a key of its own: `transport: wireguard`"
        raise invalid("a section where the cluster's name belongs", remedy)
    return value


class InventoryFile(Section):
    """The keys of an inventory file."""

    schema_: Annotated[Literal[1], BeforeValidator(_version)] = Field(
        alias="schema", description="version of this format"
    )
    cluster: Annotated[Name, BeforeValidator(_name_alone)] = Field(
        description="name of the cluster; names its state folder and its metrics"
    )
    connection: Connection = Field(
        "local",
        description=(
            "`local`: every role is a process of this machine; `ssh`: nodes are reached over SSH"
        ),
    )
    transport: Transport = Field(
        "plain",
        description=(
            "`plain`: TensorFlow, NFS and metrics cross the network in clear; `wireguard`: nodes"
            " [encrypt all of it](deployment.md#wireguard)"
        ),
    )
    wireguard: Wireguard = Wireguard()
    interface: Interface | None = Field(
        None,
        description=(
            "network interface that carries the cluster's traffic, for nodes that give none"
        ),
    )
    allow_public: bool = Field(
        False,
        description=(
            "permit addresses that the whole Internet can reach; TensorFlow's port runs any graph"
            " that it gets"
        ),
    )
    ports: Ports = Ports()
    page: Page = Page()
    nodes: tuple[Node, ...] = Field(
        min_length=1, max_length=MAXIMUM_NODES, description="the machines"
    )
    storage: Storage | None = Field(
        None, description="the folder all nodes share over NFS; null shares none"
    )
    ssh: SshSettings = SshSettings()
    deployment: Deployment = Deployment()
    monitor: Monitor = Monitor()
    service: Service = Service()
    logging: Logs = Logs()
    runs: Text = Field(
        "runs",
        description="folder that gets one folder for each job run; relative to the working folder",
    )
    jobs: Jobs = Jobs()


class Inventory(InventoryFile):
    """A cluster that was found to be consistent. `core.inventory.load` makes it."""

    path: Path
    hosts: Mapping[str, str]
    """IPv4 address of each node for all but SSH, by node name: in the tunnel where there is one."""
    links: Mapping[str, str]
    """Announced IPv4 address of each node: where SSH finds it, and the tunnel its other ends."""
    unproven: frozenset[str] = frozenset()
    """Nodes whose pinned key has never answered at their address: no other node lets them in."""

    @property
    def proves_addresses(self) -> bool:
        """Whether nodes are machines, which have to prove that an address is theirs."""
        return not self.one_host

    @property
    def admitted(self) -> Mapping[str, str]:
        """The addresses that nodes let in and export to, by node."""
        return {name: host for name, host in self.hosts.items() if name not in self.unproven}

    @cached_property
    def _tasks(self) -> tuple[Task, ...]:
        return tuple(task for task, _ in placed(enumerate(self.nodes), self.ports, self.hosts))

    def tasks(self) -> tuple[Task, ...]:
        """Return every role process, each role counted from 0.

        Parameter servers come first, then workers, then the coordinator.
        """
        return self._tasks

    def needs_roles(self, job: str) -> bool:
        """Return whether the job runs on the cluster's roles.

        A model may train in the coordinator alone.
        """
        return job not in ("train", "cv") or self.jobs.train.facts.needs_roles()

    @property
    def encrypted(self) -> bool:
        """Whether nodes reach each other through WireGuard alone."""
        return self.transport == "wireguard"

    @property
    def one_host(self) -> bool:
        """Whether every role runs on this machine.

        Then they have loopback, its own user and files; nothing is mounted or reached.
        """
        return self.connection == "local"

    @property
    def shared_folder(self) -> str | None:
        """Folder where every node finds what all share; None where nothing is mounted."""
        if self.storage is None or self.one_host:
            return None
        return f"{self.storage.mount}/shared"

    @property
    def data_folder(self) -> str | None:
        """Folder where the coordinator's node writes data sets for all.

        None where nothing is mounted.
        """
        if self.storage is None or self.one_host:
            return None
        return f"{self.storage.mount}/data"

    def roles_by_machine(self) -> dict[str, list[str]]:
        """Return the roles of each machine, by the node's name.

        A cluster on one host is one machine, `THIS_MACHINE`.
        """
        roles: dict[str, list[str]] = {}
        for task in self._tasks:
            roles.setdefault(THIS_MACHINE if self.one_host else task.node, []).append(task.role)
        return roles

    def workers_beside(self, task: Task) -> tuple[Task, ...]:
        """The workers on the machine of this task, which share its devices."""
        return tuple(
            worker for worker in self.of_role("worker") if self.one_host or worker.node == task.node
        )

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
        return next(
            (node.name for node in self.nodes for entry in node.roles if entry.role == "monitor"),
            None,
        )

    @property
    def service_nodes(self) -> tuple[str, ...]:
        """Names of the nodes with the role `service`."""
        return tuple(
            node.name for node in self.nodes if any(entry.role == "service" for entry in node.roles)
        )

    def node(self, name: str) -> Node:
        """One machine by its name. Raises KeyError when the cluster has no such node."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(f"{name} is not in {[node.name for node in self.nodes]}")
