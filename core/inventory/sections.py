"""The sections of an inventory about its nodes: how they are reached, and what stands on them."""

from ipaddress import IPv4Network
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    Field,
    StringConstraints,
)

from core.inventory.fields import (
    AbsolutePath,
    Host,
    Name,
    Port,
    Section,
    SshPort,
    Text,
    User,
    invalid,
)
from core.logs.lines import LogFormat, LogLevel

_OCTET = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"


Network = Annotated[
    str, StringConstraints(pattern=rf"^{_OCTET}(\.{_OCTET}){{3}}(/([0-9]|[12][0-9]|3[0-2]))?$")
]
"""An IPv4 address, or a network such as 192.168.1.0/24."""


class JumpHost(Section):
    """A machine through which every node is reached.

    It is for nodes that have a network of their own.
    """

    host: Host = Field(description="its address or name")
    user: User | None = Field(None, description="account on it; null is `ssh.user`")
    port: SshPort = Field(22, description="port of its SSH server")


class SshSettings(Section):
    """How nodes are logged into with `connection: ssh`.

    Host keys are pinned: `fab deploy trust` records them.
    """

    user: User = Field("pi", description="account on every node; it needs sudo without a password")
    port: SshPort = Field(22, description="port of the nodes' SSH server")
    key: Text | None = Field(
        None, description="file of the private key; null asks the agent and the usual files"
    )
    jump: JumpHost | None = Field(
        None, description="the way in where nodes cannot be reached directly"
    )
    connect_seconds: float = Field(
        10.0, ge=1, le=300, description="longest wait for a connection, a banner, a login"
    )
    parallel: int = Field(16, ge=1, le=64, description="nodes worked on at the same time")


class Storage(Section):
    """The folder all nodes share over NFS.

    It has prepared windows and wheels for all, runs for the coordinator.
    """

    server: Name | None = Field(
        None,
        description="the node that exports it, which has the role `storage`; null with `external`",
    )
    export: AbsolutePath = Field("/srv/pscluster", description="the folder on the server")
    mount: AbsolutePath = Field("/mnt/pscluster", description="where every node sees it")
    external: (
        Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]+:/[^\x00-\x20\x7f\\]*$")] | None
    ) = Field(
        None,
        description=(
            "an NFS export that exists already, e.g. `nas.local:/volume1/pscluster`, instead of"
            " `server`"
        ),
    )


class Deployment(Section):
    """What `fab deploy start` puts on the nodes of `connection: ssh`."""

    service_uid: int = Field(
        890,
        ge=100,
        le=59997,
        description=(
            "uid and gid of the account `pscluster` of jobs, the same on every node; the three"
            " numbers after it are `pscluster-role`, `-service` and `-monitor`"
        ),
    )
    minimum_workers: int | None = Field(
        None,
        ge=1,
        le=1024,
        description="least workers with which roles are started; null is half, rounded up",
    )
    firewall: bool = Field(
        True, description="an nftables table that lets only nodes reach the cluster's ports"
    )
    allow: tuple[Network, ...] = Field(
        (),
        max_length=64,
        description="further addresses or networks that may read metrics, such as a Prometheus",
    )
    node_exporter: bool = Field(
        False, description="install Prometheus's node exporter on every node"
    )
    keep_releases: int = Field(
        3, ge=1, le=20, description="releases that stay on a node for `rollback`"
    )


Transport = Literal["plain", "wireguard"]
LEAST_MTU = 1280
SMALLEST_PREFIX = 28
"""A network of fourteen addresses."""


def _subnet(text: str) -> str:
    try:
        network = IPv4Network(text)
    except ValueError:
        raise invalid(
            "no IPv4 network", "write one such as 10.217.0.0/16, with zeros behind its prefix"
        ) from None
    if not network.is_private or not 8 <= network.prefixlen <= SMALLEST_PREFIX:
        raise invalid(
            "no private IPv4 network of a usable size",
            f"write one such as 10.217.0.0/16, from /8 to /{SMALLEST_PREFIX}",
        )
    return text


class Wireguard(Section):
    """The tunnel between the nodes with `transport: wireguard`."""

    subnet: Annotated[Text, AfterValidator(_subnet)] = Field(
        "10.217.0.0/16",
        description=(
            "private network of the tunnel; a node's address there ends as its own does:"
            " 192.168.1.16 is 10.217.1.16"
        ),
    )
    port: Port = Field(51820, description="UDP port on every node")
    mtu: int = Field(
        1420,
        ge=LEAST_MTU,
        le=9000,
        description="of the tunnel: 80 bytes less than what the links between the nodes carry",
    )


class Logs(Section):
    """How every process of the cluster writes its log; docs/logs.md says what stands in a line."""

    format: LogFormat = Field(
        "text", description="`text` for people; `json` is one JSON object a line, for programs"
    )
    level: LogLevel = Field("info", description="lowest level that is logged")


class Monitor(Section):
    """The cluster's own Prometheus, as `fab deploy monitor` makes it."""

    port: Port = Field(9090, description="of its page and its queries")
    scrape_seconds: int = Field(
        5,
        ge=1,
        le=15,
        description="time between two looks at every process; the rules look at a minute and more",
    )
    retention_days: int = Field(7, ge=1, le=3650, description="how long figures are kept")
    retention_megabytes: int = Field(
        1024, ge=64, le=1_000_000, description="disk that they may take; the oldest go first"
    )
    memory_megabytes: int = Field(
        256,
        ge=64,
        le=65_536,
        description=(
            "memory that it may take on the monitor's node, which `check` adds to that of the roles"
        ),
    )


class Service(Section):
    """The recognition service on the nodes with the role `service`."""

    model: Annotated[
        str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$")
    ] = Field("har", description="name of the model, in its paths and among the versions")
    port: Port = Field(8470, description="where clients connect")
    metrics_port: Port = Field(
        9204, description="of `/metrics`, without a token, for nodes and `deployment.allow`"
    )
    allow: tuple[Network, ...] = Field(
        (),
        max_length=64,
        description="addresses or networks whose clients may connect, beside the nodes",
    )
    tls: bool = Field(
        True,
        description=(
            "HTTPS, with a certificate of an authority that root of each node keeps; false is plain"
            " HTTP"
        ),
    )
    names: tuple[Host, ...] = Field(
        (),
        max_length=16,
        description="host names by which clients call it, beside the node's own and its addresses",
    )
    certificate: AbsolutePath | None = Field(
        None,
        description=(
            "your own certificate with those above it, a PEM file on each node; needs `key`"
        ),
    )
    key: AbsolutePath | None = Field(
        None, description="its key, a PEM file on each node that root alone need read"
    )
    threads: int = Field(2, ge=1, le=64, description="batches that are computed at one time")
    batch_milliseconds: float = Field(
        2.0,
        ge=0,
        le=1000,
        description="how long a request waits for others of its batch; 0 is not at all",
    )
    memory_megabytes: int = Field(
        384,
        ge=192,
        le=65_536,
        description="memory that it may take, which `check` adds to that of the roles",
    )
