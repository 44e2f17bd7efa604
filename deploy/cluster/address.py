"""Where and as whom a node is logged into, from the inventory. Pure."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cluster.inventory import Inventory


@dataclass(frozen=True)
class SshAddress:
    """One login: `host` as SSH is to reach it, `key` a private key file or None for the agent and the usual files."""

    name: str
    host: str
    user: str
    port: int
    key: str | None
    connect_seconds: float

    @property
    def known_as(self) -> str:
        """The host as known_hosts writes it: a port other than 22 belongs to the name."""
        return self.host if self.port == 22 else f"[{self.host}]:{self.port}"


def addresses(inventory: "Inventory") -> tuple[SshAddress, ...]:
    """The login of every node, in the order of the inventory."""
    ssh = inventory.ssh
    return tuple(
        SshAddress(
            name=node.name,
            host=node.ssh.address or inventory.hosts[node.name],
            user=node.ssh.user or ssh.user,
            port=node.ssh.port or ssh.port,
            key=node.ssh.key or ssh.key,
            connect_seconds=ssh.connect_seconds,
        )
        for node in inventory.nodes
    )


def jump_address(inventory: "Inventory") -> SshAddress | None:
    """The login of the jump host, None without one."""
    ssh = inventory.ssh
    if ssh.jump is None:
        return None
    user = ssh.jump.user or ssh.user
    return SshAddress("jump host", ssh.jump.host, user, ssh.jump.port, ssh.key, ssh.connect_seconds)
