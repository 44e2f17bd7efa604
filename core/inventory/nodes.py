"""Machines of the cluster, the roles each has, and the ports they take.

The role processes follow from them.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from core.inventory import ROLE_NAMES, Task
from core.inventory.fields import Host, Name, Port, Section, SshPort, Text, User, invalid

NodeRole = Literal["storage", "ps", "worker", "coordinator", "monitor", "service"]
NODE_ROLES: tuple[NodeRole, ...] = ("storage", "ps", "worker", "coordinator", "monitor", "service")

Interface = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.:@-]{1,15}$")]
"""A network interface as Linux names it: at most 15 characters (IFNAMSIZ)."""


class RolePorts(Section):
    """Ports of one role process where they differ from the inventory's `ports`."""

    port: Port | None = Field(
        None, description="of the TensorFlow server; null takes the role's from `ports`"
    )
    metrics_port: Port | None = Field(
        None, description="of `/metrics` and `/ready`; null takes the role's"
    )


class CoordinatorPorts(RolePorts):
    """Ports of the coordinator where they differ from the inventory's `ports`."""

    page_port: Port | None = Field(
        None, description="of the [live page](page.md); null takes it from `ports`"
    )


class RoleEntry(Section):
    """One role of a node.

    It is a bare name, or a mapping of the name to the ports this process takes.
    """

    storage: Section | None = Field(None, description="the NFS server; takes no ports")
    ps: RolePorts | None = Field(None, description="a parameter server")
    worker: RolePorts | None = Field(None, description="computes gradients and samples")
    monitor: Section | None = Field(
        None, description="a Prometheus that watches the others; takes no ports here"
    )
    service: Section | None = Field(
        None,
        description="a [trained model](service.md) that answers over HTTP; takes no ports here",
    )
    coordinator: CoordinatorPorts | None = Field(
        None, description="runs the jobs; exactly one in a cluster"
    )

    @model_validator(mode="before")
    @classmethod
    def _bare_name(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {value: {}}
        if isinstance(value, dict):
            return {name: {} if ports is None else ports for name, ports in value.items()}
        return value

    @model_validator(mode="after")
    def _one_role(self) -> Self:
        if len(self.model_fields_set) != 1:
            problem = (
                f"expected one role in each entry of the list, got {len(self.model_fields_set)}"
            )
            raise invalid(problem, "write every role as an entry of its own, with its own `-`")
        return self

    @property
    def role(self) -> NodeRole:
        """Name of the role."""
        return next(name for name in NODE_ROLES if name in self.model_fields_set)

    @property
    def ports(self) -> RolePorts:
        """Ports given for this very process."""
        return {"ps": self.ps, "worker": self.worker, "coordinator": self.coordinator}.get(
            self.role
        ) or RolePorts()


class NodeSsh(Section):
    """Where one node is logged into differently."""

    user: User | None = Field(None, description="null is `ssh.user`")
    port: SshPort | None = Field(None, description="null is `ssh.port`")
    key: Text | None = Field(None, description="null is `ssh.key`")
    address: Host | None = Field(
        None, description="null is the address that the node announces to the others"
    )


class Node(Section):
    """One machine."""

    name: Name = Field(
        description="letters, digits, `-` and `_`; the same as its host name is wise"
    )
    address: Text | None = Field(
        None,
        description=(
            "IPv4 address, or a host name that resolves to one, at which the other nodes reach it"
        ),
    )
    interface: Interface | None = Field(
        None,
        description=(
            "network interface whose address this node announces ([addresses](#addresses))"
        ),
    )
    roles: tuple[RoleEntry, ...] = Field(
        min_length=1, max_length=256, description="what runs on it"
    )
    ssh: NodeSsh = NodeSsh()


PROGRAM_PORTS = 32
"""Ports of a node for programs that run on the workers' nodes: the lead's, and two a worker."""


class Ports(Section):
    """Ports of each role where a node does not give its own."""

    ps: Port = Field(2222, description="of a parameter server's TensorFlow server")
    worker: Port = Field(2223, description="of a worker's TensorFlow server")
    coordinator: Port = Field(2224, description="of the coordinator's TensorFlow server")
    ps_metrics: Port = Field(9200, description="of a parameter server's `/metrics` and `/ready`")
    worker_metrics: Port = Field(9201, description="of a worker's `/metrics` and `/ready`")
    coordinator_metrics: Port = Field(9202, description="of the coordinator's `/metrics`")
    programs: int = Field(
        2240,
        ge=1024,
        le=65_535 - PROGRAM_PORTS,
        description=(
            f"first of the {PROGRAM_PORTS} ports on every node for the processes of a program"
            " ([`fab job run --on workers`](programs.md#on-the-workers)) and of a"
            " [sweep](sweeps.md); open between the nodes alone"
        ),
    )
    coordinator_page: Port = Field(9203, description="of the coordinator's [live page](page.md)")

    @property
    def of_programs(self) -> range:
        """The ports for programs on the workers' nodes; the first is the lead's."""
        return range(self.programs, self.programs + PROGRAM_PORTS)


class Page(Section):
    """The live page that the coordinator serves while a job runs."""

    listen: Literal["loopback", "cluster", "off"] = Field(
        "loopback",
        description=(
            "`loopback`: the coordinator's node alone sees the page; `cluster`: nodes and"
            " `deployment.allow` do, at the address the node announces; `off`: there is none"
        ),
    )


Place = tuple[int, int]
"""Place of a task in the file: index of the node, index of the role among the node's."""


def placed(
    nodes: Iterable[tuple[int, Node]], ports: Ports, hosts: Mapping[str, str]
) -> list[tuple[Task, Place]]:
    """Every role process with its place in the inventory, by role and then in the order written.

    `nodes` carry their index in the file. A node without a host is addressed by its name.
    """
    nodes = list(nodes)
    placements: list[tuple[Task, Place]] = []
    for role in ROLE_NAMES:
        places = [
            (node, entry, (position, place))
            for position, node in nodes
            for place, entry in enumerate(node.roles)
            if entry.role == role
        ]
        for index, (node, entry, where) in enumerate(places):
            port = entry.ports.port or getattr(ports, role)
            metrics_port = entry.ports.metrics_port or getattr(ports, f"{role}_metrics")
            if entry.coordinator:
                page_port = entry.coordinator.page_port or ports.coordinator_page
            else:
                page_port = None
            host = hosts.get(node.name, node.name)
            placements.append(
                (Task(role, index, node.name, host, port, metrics_port, page_port), where)
            )
    return placements
