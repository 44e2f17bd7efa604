"""How nodes of `connection: ssh` are reached, what they share, what is put on them, and how the cluster is watched."""

from typing import Annotated

from pydantic import Field, StringConstraints

from cluster.inventory.fields import AbsolutePath, Name, Port, Section, Text
from cluster.logs.lines import LogFormat, LogLevel

User = Annotated[str, StringConstraints(pattern=r"^[a-z_][a-z0-9_.-]{0,31}$")]
SshPort = Annotated[int, Field(ge=1, le=65535)]
Host = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9])?$")]
"""An IPv4 address or a host name, as a word of a command line."""

_OCTET = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
Network = Annotated[str, StringConstraints(pattern=rf"^{_OCTET}(\.{_OCTET}){{3}}(/([0-9]|[12][0-9]|3[0-2]))?$")]
"""An IPv4 address, or a network such as 192.168.1.0/24."""


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


class NodeSsh(Section):
    """Where one node is logged into differently."""

    user: User | None = Field(None, description="null is `ssh.user`")
    port: SshPort | None = Field(None, description="null is `ssh.port`")
    key: Text | None = Field(None, description="null is `ssh.key`")
    address: Host | None = Field(None, description="null is the address that the node announces to the others")


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
