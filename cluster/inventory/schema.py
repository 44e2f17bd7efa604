"""The inventory itself: the keys of the file, and the cluster they describe."""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ModelWrapValidatorHandler, PrivateAttr, StringConstraints, model_validator

from cluster.inventory.cross_validation import CrossValidationJob
from cluster.inventory.fields import AbsolutePath, Host, Name, Port, Section, Seed, SshPort, Text, User, invalid
from cluster.inventory.nodes import Interface, Node, Page, Ports, placed
from cluster.inventory.task import RoleName, Task
from cluster.inventory.training import TrainJob
from cluster.logs.lines import LogFormat, LogLevel

_OCTET = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
Network = Annotated[str, StringConstraints(pattern=rf"^{_OCTET}(\.{_OCTET}){{3}}(/([0-9]|[12][0-9]|3[0-2]))?$")]
"""An IPv4 address, or a network such as 192.168.1.0/24."""


THIS_MACHINE = "this machine"


class JumpHost(Section):
    """A machine through which every node is reached, where the nodes have a network of their own."""

    host: Host = Field(description="its address or name")
    user: User | None = Field(None, description="account on it; null is `ssh.user`")
    port: SshPort = Field(22, description="port of its SSH server")


class SshSettings(Section):
    """How nodes are logged into with `connection: ssh`. Host keys are pinned: `fab deploy trust` records them."""

    user: User = Field("pi", description="account on every node; it needs sudo without a password")
    port: SshPort = Field(22, description="port of the nodes' SSH server")
    key: Text | None = Field(None, description="file of the private key; null asks the agent and the usual files")
    jump: JumpHost | None = Field(None, description="the way in where nodes cannot be reached directly")
    connect_seconds: float = Field(10.0, ge=1, le=300, description="longest wait for a connection, a banner, a login")
    parallel: int = Field(16, ge=1, le=64, description="nodes worked on at the same time")


class Storage(Section):
    """The folder all nodes share over NFS: prepared windows and wheels for all, runs for the coordinator."""

    server: Name | None = Field(
        None, description="the node that exports it, which has the role `storage`; null with `external`"
    )
    export: AbsolutePath = Field("/srv/pscluster", description="the folder on the server")
    mount: AbsolutePath = Field("/mnt/pscluster", description="where every node sees it")
    external: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]+:/[^\x00-\x20\x7f\\]*$")] | None = Field(
        None, description="an NFS export that exists already, e.g. `nas.local:/volume1/pscluster`, instead of `server`"
    )


class Deployment(Section):
    """What `fab deploy start` puts on the nodes of `connection: ssh`."""

    service_uid: int = Field(
        890, ge=100, le=60000, description="uid and gid of the account `pscluster`, the same on every node"
    )
    minimum_workers: int | None = Field(
        None, ge=1, le=1024, description="workers that must be left for roles to be started; null is half, rounded up"
    )
    firewall: bool = Field(True, description="an nftables table that lets only nodes reach the cluster's ports")
    allow: tuple[Network, ...] = Field(
        (), max_length=64, description="further addresses or networks that may read metrics, such as a Prometheus"
    )
    node_exporter: bool = Field(False, description="install Prometheus's node exporter on every node")
    keep_releases: int = Field(3, ge=1, le=20, description="releases that stay on a node for `rollback`")


class Logs(Section):
    """How every process of the cluster writes its log; docs/logs.md says what stands in a line."""

    format: LogFormat = Field("text", description="`text` for people; `json` is one JSON object a line, for programs")
    level: LogLevel = Field("info", description="the least that is logged: `info` leaves `debug` out")


class Monitor(Section):
    """The cluster's own Prometheus, as `fab deploy monitor` makes it."""

    port: Port = Field(9090, description="of its page and its queries")
    scrape_seconds: int = Field(
        5, ge=1, le=15, description="time between two looks at every process; the rules look at a minute and more"
    )
    retention_days: int = Field(7, ge=1, le=3650, description="how long figures are kept")
    retention_megabytes: int = Field(
        1024, ge=64, le=1_000_000, description="the disk they may take; the oldest go first"
    )
    memory_megabytes: int = Field(
        256,
        ge=64,
        le=65_536,
        description="the memory it may take on the monitor's node, counted by `check` with that of the roles",
    )


class Service(Section):
    """The recognition service on the nodes with the role `service`."""

    model: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$")] = Field(
        "har", description="name of the model, in its paths and among the versions"
    )
    port: Port = Field(8470, description="where clients connect")
    metrics_port: Port = Field(9204, description="of `/metrics`, without a token, for nodes and `deployment.allow`")
    allow: tuple[Network, ...] = Field(
        (), max_length=64, description="addresses or networks whose clients may connect, beside the nodes"
    )
    tls: bool = Field(
        True, description="HTTPS, with a certificate of an authority that each node makes; false is plain HTTP"
    )
    names: tuple[Host, ...] = Field(
        (), max_length=16, description="host names by which clients call it, beside the node's own and its addresses"
    )
    certificate: AbsolutePath | None = Field(
        None, description="a certificate of one's own with those above it, a PEM file on each node; needs `key`"
    )
    key: AbsolutePath | None = Field(None, description="its key, a PEM file on each node that root alone need read")
    threads: int = Field(2, ge=1, le=64, description="batches that are computed at one time")
    batch_milliseconds: float = Field(
        2.0, ge=0, le=1000, description="how long a request waits for others to be computed with; 0 is not at all"
    )
    shadow_seconds: float = Field(
        10.0,
        ge=0,
        le=3600,
        description="how long a promoted version is compared on live windows before it takes over; 0 is not at all",
    )
    least_agreement: float = Field(
        0.0, ge=0, le=1, description="share of the compared windows that must get the served version's label"
    )
    memory_megabytes: int = Field(
        384, ge=192, le=65_536, description="the memory it may take, counted by `check` with that of the roles"
    )


JobName = Literal["pi", "train", "cv", "evaluate", "recognise"]


class PiJob(Section):
    """Monte Carlo estimation of pi; the samples per second of each node are its calibration."""

    samples: int = Field(100_000_000, ge=1, le=10**15, description="random points of the whole job")
    chunk_samples: int = Field(8_000_000, ge=1, le=10**9, description="points of one dispatch to one worker")
    seed: Seed = Field(0, description="of the random streams, one for each chunk")


class EvaluateJob(Section):
    """Accuracy and the other figures of a trained model on the test set, computed by the workers."""

    run: Text | None = Field(None, description="folder of the training run to evaluate; null is the newest one")


class RecogniseJob(Section):
    """A long recording, labelled by the workers with a trained model."""

    run: Text | None = Field(None, description="folder of the training run whose model labels; null is the newest one")
    data: Text | None = Field(
        None, description="the recording: a CSV t,ax,ay,az,gx,gy,gz, an .npz, or HAPT's acc_*.txt; where the job runs"
    )
    acceleration: Literal["g", "m/s2"] = Field("g", description="unit of the recording's acceleration")
    rotation: Literal["rad/s", "deg/s"] = Field("rad/s", description="unit of its angular velocity")
    hop: int | None = Field(
        None, ge=1, le=4096, description="samples from one window to the next; null is the stride of the training"
    )


class Jobs(Section):
    """What `start` runs once the roles are ready, in the order written. A job not written can still be run by name."""

    pi: PiJob = PiJob()
    train: TrainJob = TrainJob()
    cv: CrossValidationJob = CrossValidationJob()
    evaluate: EvaluateJob = EvaluateJob()
    recognise: RecogniseJob = RecogniseJob()
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


MAXIMUM_NODES = 1024

Connection = Literal["ssh", "local"]


def _version(value: object) -> object:
    if type(value) is not int or value != 1:  # Literal[1] alone takes true and 1.0 for it
        remedy = "write `schema: 1`, or use the version of pscluster that the file was written for"
        raise invalid("this version reads schema 1", remedy)
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
    service: Service = Service()
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
        return tuple(task for task, _ in placed(enumerate(self.nodes), self.ports, self.hosts))

    def tasks(self) -> tuple[Task, ...]:
        """Every role process: parameter servers first, then workers, then the coordinator, each counted from 0."""
        return self._tasks

    def needs_roles(self, job: str) -> bool:
        """Whether the job runs on the cluster's roles; a model may train and label in the coordinator alone."""
        return job not in ("train", "cv", "recognise") or self.jobs.train.facts.needs_roles()

    @property
    def one_host(self) -> bool:
        """Whether every role runs on this machine: loopback, its own user and files; nothing is mounted or reached."""
        return self.connection == "local"

    @property
    def shared_folder(self) -> str | None:
        """Where every node finds what all share; None where nothing is mounted."""
        return None if self.storage is None or self.one_host else f"{self.storage.mount}/shared"

    @property
    def data_folder(self) -> str | None:
        """Where the coordinator's node writes data sets for all, and they read them; None where nothing is mounted."""
        return None if self.storage is None or self.one_host else f"{self.storage.mount}/data"

    def roles_by_machine(self) -> dict[str, list[str]]:
        """The roles of each machine, by the node's name; a cluster on one host is one machine, `THIS_MACHINE`."""
        found: dict[str, list[str]] = {}
        for task in self._tasks:
            found.setdefault(THIS_MACHINE if self.one_host else task.node, []).append(task.role)
        return found

    def workers_beside(self, task: Task) -> tuple[Task, ...]:
        """The workers on the machine of this task, which share its devices."""
        return tuple(worker for worker in self.of_role("worker") if self.one_host or worker.node == task.node)

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

    @property
    def service_nodes(self) -> tuple[str, ...]:
        """Names of the nodes with the role `service`."""
        return tuple(node.name for node in self.nodes if any(entry.role == "service" for entry in node.roles))

    def node(self, name: str) -> Node:
        """One machine by its name. Raises KeyError when the cluster has no such node."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(f"{name} is not in {[node.name for node in self.nodes]}")
