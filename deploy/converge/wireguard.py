"""The tunnel between the nodes: question, facts, checks, keys, interface and undo. Pure.

Each node makes its own keys. The public one is pinned on the operator's machine, through the SSH
connection whose host key is pinned, and the other nodes get it from there.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv4Network

from deploy.cluster.login import IN_CLEAR, TunnelKeys, is_tunnel_key, tunnel_key_changed
from deploy.cluster.places import UNIT_FOLDER
from deploy.common.command_line import quoted
from deploy.converge.machine_facts import MachineFacts, Questions
from deploy.converge.resources import Absent, File, Folder, RunningUnit, UnitFiles
from deploy.converge.subject import (
    Call,
    Change,
    DeploymentDisplay,
    DeploymentSpec,
    Found,
    Learn,
    NodeAnswer,
    NodeSpec,
    Resource,
    Shell,
    Subject,
    Upload,
)
from deploy.render.network import (
    IN_THE_KERNEL,
    IN_USER_SPACE,
    NFS_PORT,
    PEERS_PATH,
    PRIVATE_KEY,
    TABLE,
    TUNNEL_FOLDER,
    TUNNEL_INTERFACE,
    TUNNEL_MODULE,
    TUNNEL_SCRIPT,
    TUNNEL_UNIT,
    firewall_mark,
    tunnel_peers,
    tunnel_script,
    tunnel_unit,
)
from deploy.rooted.commands import remove

UNIT_PATH = f"{UNIT_FOLDER}/{TUNNEL_UNIT}"
KEY = "wireguard_key"
"""A fact: the node's public key."""
NETWORKS = "networks"
"""A fact: interface and network of each address."""
_HINT = f"`journalctl -u {TUNNEL_UNIT}` there says more"
_AGAIN = Shell(
    "let the tunnel know it",
    f"! systemctl -q is-active {TUNNEL_UNIT} || systemctl reload {TUNNEL_UNIT}",
    hint=_HINT,
)


def _script(questions: Questions) -> str:
    return f"""\
section wireguard; [ ! -s {PRIVATE_KEY} ] || wg pubkey <{PRIVATE_KEY} 2>/dev/null
section tunnels
{{ [ -d /sys/module/wireguard ] || modprobe -nq wireguard; }} 2>/dev/null && echo kernel
"""


def _tunnel_facts(answer: NodeAnswer) -> Mapping[str, object]:
    key = answer.sections.get("wireguard", "").strip()
    networks = []
    for line in answer.sections.get("addresses", "").splitlines():
        fields = line.split()
        if "inet" in fields[2:-1]:
            network = IPv4Interface(fields[fields.index("inet") + 1]).network
            networks.append((fields[1], network))
    return {
        KEY: key if is_tunnel_key(key) else None,
        TUNNEL_MODULE: answer.sections.get("tunnels", "").strip() == "kernel",
        NETWORKS: tuple(networks),
    }


def _check(spec: NodeSpec, facts: MachineFacts) -> Found:
    inventory = spec.inventory
    if not inventory.encrypted:
        if spec.name == inventory.nodes[0].name:
            yield "ok", "transport", IN_CLEAR
        return
    yield from (("problem", "transport", line) for line in _shared_networks(spec, facts))
    own_address = inventory.hosts[spec.name]
    twins = [
        name for name, host in inventory.hosts.items() if host == own_address and name != spec.name
    ]
    if twins:
        line = f"{own_address} would be the address of {twins[0]} in the tunnel too"
        yield "problem", "transport", f"{line}: choose a larger network as `wireguard.subnet`"
    now = facts.more.get(KEY)
    pinned = spec.tunnel_key
    if now is not None and pinned is not None and now != pinned:
        yield "problem", "transport", tunnel_key_changed(spec.name, pinned, str(now))
    if facts.more.get(TUNNEL_MODULE):
        return
    line = "its kernel has no WireGuard: the process wireguard-go carries it, which is slower"
    yield "warning", "transport", line


def _shared_networks(spec: NodeSpec, facts: MachineFacts) -> Iterator[str]:
    """Yield a line for each network of the node that the tunnel's would hide."""
    subnet = IPv4Network(spec.inventory.wireguard.subnet)
    networks = facts.more.get(NETWORKS, ())
    assert isinstance(networks, tuple)
    for interface, network in networks:
        if interface != TUNNEL_INTERFACE and network.overlaps(subnet):
            yield (
                f"{interface} is in {network}, which the tunnel's {subnet} overlaps: choose another"
                " private network as `wireguard.subnet`"
            )


@dataclass(frozen=True)
class TunnelKey:
    """The node's own pair of keys: the private one never leaves it, the public one is pinned."""

    node: str
    keys: TunnelKeys

    def changes(self, facts: MachineFacts) -> tuple[Change, ...]:
        """Make the pair where there is none, or another is wanted; pin what is not pinned."""
        now = facts.more.get(KEY)
        learn = Learn(
            "pin its public key",
            f"wg pubkey <{PRIVATE_KEY}",
            lambda key: self.keys.pin(self.node, key.strip()),
        )
        replaced = self.node in self.keys.replaced
        if now is not None and not replaced:
            if now == self.keys.known.get(self.node):
                return ()
            return (Change("key", "WireGuard", "pin", "made there before", (learn,)),)
        if now is None:
            action = "create"
        else:
            action = "change"
        make = f"umask 077; wg genkey >{PRIVATE_KEY}.new && mv -f {PRIVATE_KEY}.new {PRIVATE_KEY}"
        if not replaced:
            make = f"[ -s {PRIVATE_KEY} ] || {{ {make}; }}"
        steps = (Shell("make a pair of keys", make), learn)
        return (Change("key", "WireGuard", action, "made there; its public one is pinned", steps),)


@dataclass(frozen=True)
class TunnelPeers:
    """The other nodes' keys, addresses and ends."""

    spec: DeploymentSpec
    node: str
    keys: TunnelKeys

    def changes(self, facts: MachineFacts) -> tuple[Change, ...]:
        """Write what differs; a key that a node of this run is still to make differs too."""
        now = facts.files.get(PEERS_PATH)
        to_come = self.keys.replaced | (self.spec.takes_part - set(self.keys.known))
        if not to_come and now is not None and now.content == self._text():
            return ()
        steps = (Upload(f"write {PEERS_PATH}", self._text, PEERS_PATH, 0o600), _AGAIN)
        count = f"{len(self.spec.inventory.nodes) - 1} other nodes"
        return (Change("file", PEERS_PATH, "create" if now is None else "change", count, steps),)

    def _text(self) -> bytes:
        return tunnel_peers(self.spec.inventory, self.node, self.keys.known).encode()


@dataclass(frozen=True)
class OpenedWithin:
    """The table of before answers in the tunnel too, until the firewall's own phase replaces it."""

    addresses: tuple[str, ...]
    mark: str

    def changes(self, facts: MachineFacts) -> tuple[Change, ...]:
        """Add the addresses to a loaded table that has others: NFS is mounted before that phase."""
        if facts.firewall in (None, self.mark) or UNIT_PATH in facts.files:
            return ()
        elements = ", ".join(self.addresses)
        script = quoted("nft", f"add element inet {TABLE} nodes {{ {elements} }}")
        steps = (Shell("let the tunnel's addresses in", script),)
        return (Change("firewall", "tunnel", "create", "until its rules are replaced", steps),)


def _key_resources(spec: DeploymentSpec, node: str, facts: MachineFacts) -> Sequence[Resource]:
    if not spec.inventory.encrypted:
        return ()
    assert spec.keys is not None  # `open_cluster` reads them
    return (Folder(TUNNEL_FOLDER, mode=0o700), TunnelKey(node, spec.keys))


def _resources(spec: DeploymentSpec, node: str, facts: MachineFacts) -> Sequence[Resource]:
    inventory = spec.inventory
    if not inventory.encrypted:
        return (OpenedBeside(tuple(sorted(inventory.links.values()))),)
    assert spec.keys is not None
    unit = tunnel_unit(inventory, node, in_kernel=bool(facts.more.get(TUNNEL_MODULE)))
    within = tuple(sorted(inventory.hosts.values()))
    return (
        OpenedWithin(within, firewall_mark(inventory, node)),
        File(TUNNEL_SCRIPT, tunnel_script().encode(), 0o600, then=(_AGAIN,)),
        TunnelPeers(spec, node, spec.keys),
        UnitFiles(((UNIT_PATH, unit),)),
        RunningUnit(TUNNEL_UNIT, UNIT_PATH, unit, hint=_HINT),
    )


@dataclass(frozen=True)
class KeyGone:
    """No key on the node, and none pinned once it is gone."""

    node: str
    keys: TunnelKeys | None

    def changes(self, facts: MachineFacts) -> tuple[Change, ...]:
        """Remove it, and forget its public one."""
        if TUNNEL_FOLDER not in facts.files:
            return ()

        def forget(_: DeploymentDisplay) -> None:
            if self.keys is not None:
                self.keys.forget([self.node])

        steps = (
            Shell(f"remove {TUNNEL_FOLDER}", quoted(*remove(TUNNEL_FOLDER))),
            Call("forget its public key", forget),
        )
        return (Change("key", "WireGuard", "remove", "not in the inventory any more", steps),)


@dataclass(frozen=True)
class OpenedBeside:
    """NFS beside a tunnel that goes: mounts move before the firewall's own phase."""

    links: tuple[str, ...]

    def changes(self, facts: MachineFacts) -> tuple[Change, ...]:
        """Open the port of NFS to the nodes' own addresses while the tunnel is there."""
        if UNIT_PATH not in facts.files:
            return ()
        nodes = ", ".join(self.links)
        port = NFS_PORT
        accept = f"input ip saddr {{ {nodes} }} tcp dport {port} accept"
        rule = quoted(f"insert rule inet {TABLE} {accept}")
        steps = (Shell("let NFS in beside the tunnel", f"nft {rule} 2>/dev/null || :"),)
        return (Change("firewall", "tunnel", "create", "until its rules are replaced", steps),)


def _without(spec: DeploymentSpec, node: str, facts: MachineFacts) -> Sequence[Resource]:
    """Return the end of the tunnel, after the mounts and the roles have left it.

    An NFS mount whose server is out of reach cannot be taken away.
    """
    if spec.inventory.encrypted:
        return ()
    ended = Shell("end the tunnel", f"systemctl disable --now {TUNNEL_UNIT} 2>/dev/null || :")
    reload = Shell("reload systemd", "systemctl daemon-reload")
    return (
        Absent(UNIT_PATH, before=(ended,), then=(reload,)),
        *map(Absent, (TUNNEL_SCRIPT, PEERS_PATH)),
        KeyGone(node, spec.keys),
    )


def _undo() -> str:
    return f"""\
systemctl stop {TUNNEL_UNIT} 2>/dev/null
ip link delete {TUNNEL_INTERFACE} 2>/dev/null
"""


def _questions(spec: DeploymentSpec, node: str) -> Questions:
    return Questions(
        files=(TUNNEL_FOLDER, PEERS_PATH, TUNNEL_SCRIPT),
        units=(TUNNEL_UNIT,),
        packages=(IN_THE_KERNEL, IN_USER_SPACE),
    )


KEYS = Subject("keys of the tunnel", "prepare", resources=_key_resources)
TUNNEL = Subject(
    "tunnel", "transport", _script, _tunnel_facts, _check, _resources, _undo, _questions
)
TUNNEL_END = Subject("end of the tunnel", "services", resources=_without)
