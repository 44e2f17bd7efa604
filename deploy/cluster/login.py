"""Where and as whom `fab` logs into a node, and the keys that were found there.

Host keys and the nodes' public keys of WireGuard are pinned, beside each other.
"""

import base64
import binascii
import hashlib
import json
import random
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from core.control.own_state import make_private
from core.ground.errors import ClusterError, reason_of
from core.ground.files import atomic_write, read_json, whole_file
from core.ground.waiting import pause
from deploy.cluster.connector import NodeUnreachableError
from deploy.cluster.openssh import ConfigurationError, Route, expanded, own_account, route_to

if TYPE_CHECKING:
    from paramiko import HostKeys, PKey

    from core.inventory import Inventory
    from core.inventory.fields import Section


@dataclass(frozen=True)
class SshAddress:
    """One login as the inventory gives it.

    What it leaves out, OpenSSH's own configuration decides: see `route`.

    `host` is what SSH is to reach, `key` a private key file. `usual_user` is the account where
    neither names one.
    """

    name: str
    host: str
    given_user: str | None
    given_port: int | None
    key: str | None
    connect_seconds: float
    usual_user: str = "pi"
    key_name: str | None = None
    """The host name that the key is pinned for, where `host` is the trusted address of it."""

    @cached_property
    def route(self) -> Route:
        """The way there, as `ssh` would take it. Raises NodeUnreachableError."""
        try:
            route = self._route_of(self.given_user)
            # `ssh -G` names this account where no configuration names another.
            if self.given_user is None and route.user == own_account() != self.usual_user:
                route = self._route_of(
                    self.usual_user
                )  # `Match user` and %r are of the account that logs in
            return route
        except ConfigurationError as error:
            raise NodeUnreachableError(f"{self.name} ({self.host}): {error}") from error

    def _route_of(self, user: str | None) -> Route:
        if self.key is None:
            key = None
        else:
            key = expanded(self.key).absolute()
        return route_to(self.host, user, self.given_port, key, self.connect_seconds)

    @property
    def user(self) -> str:
        """Return the account of the inventory, else of SSH's configuration, else the usual one."""
        if self.given_user is None:
            return self.route.user
        return self.given_user

    @property
    def port(self) -> int:
        """The port: the inventory's, else that of the SSH configuration."""
        if self.given_port is None:
            return self.route.port
        return self.given_port

    @property
    def known_as(self) -> str:
        """The host as known_hosts writes it: a port other than 22 belongs to the name."""
        name = self.key_name or self.host
        if self.port == 22:
            return name
        return f"[{name}]:{self.port}"

    @property
    def copy_id(self) -> str:
        """The command that brings the public key there."""
        if self.given_port not in (None, 22):
            port = f"-p {self.given_port} "
        else:
            port = ""
        return f"ssh-copy-id {port}{self.user}@{self.host}"

    @property
    def where(self) -> str:
        """Name, account and place, for a message."""
        return f"{self.name} ({self.user}@{self.host}:{self.port})"


def addresses(inventory: "Inventory") -> tuple[SshAddress, ...]:
    """The login of every node, in the order of the inventory."""
    ssh = inventory.ssh
    return tuple(
        SshAddress(
            name=node.name,
            host=node.ssh.address or inventory.links[node.name],
            given_user=node.ssh.user or _explicit_value(ssh, "user"),
            given_port=node.ssh.port or _explicit_value(ssh, "port"),
            key=node.ssh.key or ssh.key,
            connect_seconds=ssh.connect_seconds,
            usual_user=ssh.user,
            key_name=None if node.ssh.address else node.address,
        )
        for node in inventory.nodes
    )


def _explicit_value(section: "Section", key: str) -> Any:
    """The value that the person wrote, None for the default."""
    if key in section.model_fields_set:
        return getattr(section, key)
    return None


def jump_address(inventory: "Inventory") -> SshAddress | None:
    """The login of the jump host, None without one."""
    ssh = inventory.ssh
    if ssh.jump is None:
        return None
    return SshAddress(
        name="jump host",
        host=ssh.jump.host,
        given_user=ssh.jump.user or _explicit_value(ssh, "user"),
        given_port=_explicit_value(ssh.jump, "port"),
        key=ssh.key,
        connect_seconds=ssh.connect_seconds,
        usual_user=ssh.user,
    )


T = TypeVar("T")

TRIES = 6
"""The first, and five more."""


def server_was_busy(error: BaseException) -> bool:
    """Whether the server closed the connection before it said who it is."""
    from paramiko import SSHException

    # Paramiko has the same words for a server that closed and one that is silent: only the first is
    # busy.
    if (
        isinstance(error, SSHException)
        and "banner" in str(error).lower()
        and error.__context__ is not None
    ):
        error = error.__context__
    return isinstance(error, EOFError | ConnectionResetError)


def why_no_ssh(error: BaseException, connect_seconds: float) -> str | None:
    """Return why no usable SSH server answers there, and a remedy; None for another error."""
    from paramiko import SSHException

    if server_was_busy(error):
        return (
            f"closed the connection {TRIES} times before it said who it is: too many logins at once"
            " (MaxStartups), a ban of this machine (fail2ban), or no SSH server; wait a minute, or"
            " see `journalctl -u ssh` there"
        )
    message = str(error)
    if not isinstance(error, SSHException):
        return None
    if "SSH protocol banner" in message or message == "No existing session":
        return (
            f"takes the connection and says nothing that SSH would within {connect_seconds:g} s: is"
            " the port right, and does the machine hang?"
        )
    if message.startswith(
        ("Indecipherable protocol", "Invalid SSH banner", "Incompatible version", "Invalid packet")
    ):
        return f"what answers is no SSH server ({message}): are the address and the port right?"
    return None


def until_not_busy(log_in: Callable[[], T]) -> T:
    """Log in; a busy server is asked again.

    Raises the last error, or one that has another cause.
    """
    for attempt in range(TRIES):
        try:
            return log_in()
        except Exception as error:
            if attempt + 1 == TRIES or not server_was_busy(error.__cause__ or error):
                raise
            # Longer with each attempt, and not as long as the others who were dropped at the same
            # time.
            pause(random.uniform(0.2, 0.6) * (attempt + 1))
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
        columns = (
            f"{self.address.name:<12} {self.address.known_as:<21} {self.key.get_name()}"
            f" {fingerprint(self.key)}"
        )
        return f"{columns}  {self.standing}" + (
            f", was {self.pinned}" if self.standing == "changed" else ""
        )


class PinnedKeys:
    """The file `known_hosts` of one cluster, in OpenSSH's format."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> "HostKeys":
        """The keys on file; none where there is no file."""
        from paramiko import HostKeys

        if self.path.exists():
            return HostKeys(str(self.path))
        return HostKeys()

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
        """Pin these keys in the place of others of the same hosts, in one step."""
        keys = self.load()
        for sighting in sightings:
            name = sighting.address.known_as
            if keys.lookup(name) is not None:
                del keys[name]
            keys.add(name, sighting.key.get_name(), sighting.key)
        make_private(self.path.parent)
        with whole_file(self.path) as stream:
            keys.save(f"/proc/self/fd/{stream.fileno()}")  # paramiko takes names alone


TUNNEL_KEYS_FILE = "wireguard_keys.json"
"""File in the cluster's state folder."""
IN_CLEAR = (
    "plain: TensorFlow, NFS and metrics cross the switch in clear; `transport: wireguard` in the"
    " inventory encrypts them"
)
TUNNEL_KEY_BYTES = 32
MOST_TUNNEL_KEYS_BYTES = 1 << 20


def is_tunnel_key(text: object) -> bool:
    """Whether this is 32 bytes in base64, as WireGuard writes a key."""
    if not isinstance(text, str) or len(text) != 44:
        return False
    try:
        return len(binascii.a2b_base64(text, strict_mode=True)) == TUNNEL_KEY_BYTES
    except (ValueError, binascii.Error):
        return False


class TunnelKeys:
    """One public key a node. Without a file the keys are known to this process alone."""

    def __init__(self, path: Path | None = None) -> None:
        """Read the pinned keys. Raises ClusterError for a file that has others."""
        self._path = path
        self._lock = threading.Lock()
        self._known = _read_tunnel_keys(path)
        self._replaced: set[str] = set()

    @property
    def known(self) -> Mapping[str, str]:
        """The pinned key of each node."""
        return MappingProxyType(self._known)

    @property
    def replaced(self) -> frozenset[str]:
        """The nodes that are to make new keys in this run, and have not yet."""
        return frozenset(self._replaced)

    def replace(self, names: Iterable[str]) -> None:
        """Let these nodes make new keys, which take the place of what is pinned."""
        self._replaced.update(names)

    def forget(self, names: Iterable[str]) -> None:
        """Drop the keys of nodes that this machine took theirs from."""
        with self._lock:
            gone = [name for name in names if self._known.pop(name, None) is not None]
            if gone:
                self._keep()

    def pin(self, node: str, key: str) -> None:
        """Keep a node's key. Raises ClusterError where another one is pinned."""
        if not is_tunnel_key(key):
            raise ClusterError(f"{node}: expected a public key of WireGuard, got {key!r:.80}")
        with self._lock:
            if self._known.get(node, key) != key and node not in self._replaced:
                raise ClusterError(f"{node}: {tunnel_key_changed(node, self._known[node], key)}")
            self._known[node] = key
            self._replaced.discard(node)
            self._keep()

    def _keep(self) -> None:
        if self._path is not None:
            text = json.dumps(self._known, indent=1, sort_keys=True)
            self._path.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(self._path, text.encode() + b"\n")


def tunnel_key_changed(node: str, pinned: str, key: str) -> str:
    """Return what a changed key may mean, and the remedy."""
    return (
        f"its public key of WireGuard is {key}, and {pinned} is pinned: another card, or another"
        f" machine in its place; if you know why, `fab deploy start --new-keys {node}` makes a new"
        " pair there and pins it"
    )


def _read_tunnel_keys(path: Path | None) -> dict[str, str]:
    if path is None or not path.exists():
        return {}
    try:
        keys = read_json(path, MOST_TUNNEL_KEYS_BYTES)
    except (OSError, ValueError) as problem:
        raise ClusterError(f"{path}: cannot be read: {reason_of(problem)}") from None
    if not isinstance(keys, dict) or not all(map(is_tunnel_key, keys.values())):
        raise ClusterError(f"{path}: expected a public key of WireGuard for each node")
    return keys
