"""Where and as whom `fab` logs into a node, and the next try after a busy server dropped a login."""

import random
import time
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


TRIES = 6
"""The first, and five more."""


def server_was_busy(error: BaseException) -> bool:
    """Whether the server closed the connection before it said who it is."""
    from paramiko import SSHException

    # Paramiko has the same words for a server that closed and one that is silent: only the first is busy.
    if isinstance(error, SSHException) and "banner" in str(error).lower() and error.__context__ is not None:
        error = error.__context__
    return isinstance(error, EOFError | ConnectionResetError)


def why_no_ssh(error: BaseException, connect_seconds: float) -> str | None:
    """Why what answers there is no SSH server that can be used, and what to do; None for another error."""
    from paramiko import SSHException

    if server_was_busy(error):
        return (
            f"closed the connection {TRIES} times before it said who it is: too many logins at once (MaxStartups), a "
            "ban of this machine (fail2ban), or no SSH server; wait a minute, or see `journalctl -u ssh` there"
        )
    said = str(error)
    if not isinstance(error, SSHException):
        return None
    if "SSH protocol banner" in said or said == "No existing session":
        return (
            f"takes the connection and says nothing that SSH would within {connect_seconds:g} s: is the port right, "
            "and does the machine hang?"
        )
    if said.startswith(("Indecipherable protocol", "Invalid SSH banner", "Incompatible version", "Invalid packet")):
        return f"what answers is no SSH server ({said}): are the address and the port right?"
    return None


def wait_a_little(attempt: int) -> None:
    """Longer with each attempt, and not as long as the others who were dropped at the same time."""
    time.sleep(random.uniform(0.2, 0.6) * (attempt + 1))
