"""Where and as whom `fab` logs into a node, and the host keys that the nodes of a cluster were found to have."""

import base64
import hashlib
import os
import random
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from deploy.cluster.connector import NodeUnreachableError

if TYPE_CHECKING:
    from paramiko import HostKeys, PKey

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


T = TypeVar("T")

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


def until_not_busy(log_in: Callable[[], T]) -> T:
    """What `log_in` returns; a busy server is asked again. Raises the last error, or one that has another cause."""
    for attempt in range(TRIES):
        try:
            return log_in()
        except Exception as error:
            if attempt + 1 == TRIES or not server_was_busy(error.__cause__ or error):
                raise
            # Longer with each attempt, and not as long as the others who were dropped at the same time.
            time.sleep(random.uniform(0.2, 0.6) * (attempt + 1))
    raise AssertionError("the last attempt returns or raises")


KeyStanding = Literal["known", "new", "changed"]


def fingerprint(key: "PKey") -> str:
    """`SHA256:...` as `ssh-keygen -l` prints it."""
    digest = hashlib.sha256(key.asbytes()).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


@dataclass(frozen=True)
class Sighting:
    """The key a node shows now, and how it stands to the one that is pinned."""

    address: SshAddress
    key: Any
    standing: KeyStanding
    pinned: str | None

    @property
    def line(self) -> str:
        """One line for a person who compares fingerprints."""
        shown = f"{self.address.name:<12} {self.address.known_as:<21} {self.key.get_name()} {fingerprint(self.key)}"
        return f"{shown}  {self.standing}" + (f", was {self.pinned}" if self.standing == "changed" else "")


class PinnedKeys:
    """The file `known_hosts` of one cluster, in OpenSSH's format."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> "HostKeys":
        """The keys on file; none where there is no file."""
        from paramiko import HostKeys

        return HostKeys(str(self.path)) if self.path.exists() else HostKeys()

    def standing(self, address: SshAddress, key: "PKey") -> Sighting:
        """How `key` compares to the pinned ones of its type, or of any type where there is none."""
        entries = self.load().lookup(address.known_as)
        if entries is None or not len(entries):
            return Sighting(address, key, "new", None)
        pinned = entries.get(key.get_name()) or next(iter(entries.values()))
        if pinned.asbytes() == key.asbytes():
            return Sighting(address, key, "known", None)
        return Sighting(address, key, "changed", f"{pinned.get_name()} {fingerprint(pinned)}")

    def record(self, sightings: "list[Sighting]") -> None:
        """Pin these keys, in the place of any others of the same hosts; the file is replaced in one step."""
        keys = self.load()
        for sighting in sightings:
            name = sighting.address.known_as
            if keys.lookup(name) is not None:
                del keys[name]
            keys.add(name, sighting.key.get_name(), sighting.key)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        keys.save(str(partial))
        partial.replace(self.path)


def ask_for_key(address: SshAddress, through: Any = None) -> "PKey":
    """The key that the node's SSH server shows, without a login. `through` is an open connection to a jump host.

    Raises NodeUnreachableError.
    """
    return until_not_busy(lambda: _shown_key(address, through))


def _shown_key(address: SshAddress, through: Any) -> "PKey":
    from paramiko import SSHException, Transport

    try:
        if through is None:
            channel: Any = socket.create_connection((address.host, address.port), timeout=address.connect_seconds)
        else:
            channel = through.transport.open_channel(
                "direct-tcpip", (address.host, address.port), ("", 0), timeout=address.connect_seconds
            )
    except (OSError, SSHException) as error:
        what = f"no connection: {str(error) or type(error).__name__}; is it switched on, and is the address right?"
        why = why_no_ssh(error, address.connect_seconds) or what
        raise NodeUnreachableError(f"{address.name} ({address.host}:{address.port}): {why}") from error
    transport = Transport(channel)
    try:
        transport.banner_timeout = address.connect_seconds
        transport.start_client(timeout=address.connect_seconds)
        key = transport.get_remote_server_key()
    except (SSHException, OSError, EOFError) as error:
        why = why_no_ssh(error, address.connect_seconds) or f"no SSH server answers there: {error}"
        raise NodeUnreachableError(f"{address.name} ({address.host}:{address.port}): {why}") from error
    finally:
        transport.close()
        channel.close()
    return key
