"""The tunnel between the nodes: question, facts, checks, keys, interface and undo. Pure.

Each node makes its own keys. The public one is pinned on the operator's machine, through the SSH
connection whose host key is pinned, and the other nodes get it from there.
"""

from collections.abc import Iterator
from ipaddress import IPv4Interface, IPv4Network

from deploy.cluster.login import IN_CLEAR, TunnelKeys, is_tunnel_key, tunnel_key_changed
from deploy.cluster.places import UNIT_FOLDER
from deploy.common.command_line import quoted
from deploy.converge.machine_facts import MachineFacts, Questions
from deploy.converge.resources import (
    RunningUnit,
    keep_absent,
    keep_file,
    keep_folder,
    keep_unit_files,
)
from deploy.converge.subject import (
    Call,
    Change,
    Changes,
    DeploymentSpec,
    Found,
    Learn,
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


_SCRIPT = f"""\
section {KEY}; [ ! -s {PRIVATE_KEY} ] || wg pubkey <{PRIVATE_KEY} 2>/dev/null
section {TUNNEL_MODULE}
{{ [ -d /sys/module/wireguard ] || modprobe -nq wireguard; }} 2>/dev/null && echo kernel
section {NETWORKS}; ip -o -4 addr show
"""


def _public_key(text: str) -> str | None:
    key = text.strip()
    if is_tunnel_key(key):
        return key
    return None


def _networks(text: str) -> tuple[tuple[str, IPv4Network], ...]:
    networks = []
    for line in text.splitlines():
        fields = line.split()
        if "inet" in fields[2:-1]:
            network = IPv4Interface(fields[fields.index("inet") + 1]).network
            networks.append((fields[1], network))
    return tuple(networks)


def _check(spec: DeploymentSpec, facts: MachineFacts) -> Found:
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
    pinned = spec.pinned_key
    if now is not None and pinned is not None and now != pinned:
        yield "problem", "transport", tunnel_key_changed(spec.name, pinned, now)
    if facts.more.get(TUNNEL_MODULE):
        return
    yield (
        "warning",
        "transport",
        "its kernel has no WireGuard: the process wireguard-go carries it, which is slower",
    )


def _shared_networks(spec: DeploymentSpec, facts: MachineFacts) -> Iterator[str]:
    """Yield a line for each network of the node that the tunnel's would hide."""
    subnet = IPv4Network(spec.inventory.wireguard.subnet)
    for interface, network in facts.more.get(NETWORKS, ()):
        if interface != TUNNEL_INTERFACE and network.overlaps(subnet):
            yield (
                f"{interface} is in {network}, which the tunnel's {subnet} overlaps: choose another"
                " private network as `wireguard.subnet`"
            )


def _keep_key(facts: MachineFacts, node: str, keys: TunnelKeys) -> Changes:
    """Make the node's own pair of keys where there is none, or another is wanted; pin the public.

    The private one never leaves the node.
    """
    now = facts.more.get(KEY)
    learn = Learn(
        "pin its public key",
        f"wg pubkey <{PRIVATE_KEY}",
        lambda key: keys.pin(node, key.strip()),
    )
    replaced = node in keys.replaced
    if now is not None and not replaced:
        if now != keys.known.get(node):
            yield Change("key", "WireGuard", "pin", "made there before", (learn,))
        return
    make = f"umask 077; wg genkey >{PRIVATE_KEY}.new && mv -f {PRIVATE_KEY}.new {PRIVATE_KEY}"
    if not replaced:
        make = f"[ -s {PRIVATE_KEY} ] || {{ {make}; }}"
    steps = (Shell("make a pair of keys", make), learn)
    if now is None:
        action = "create"
    else:
        action = "change"
    yield Change("key", "WireGuard", action, "made there; its public one is pinned", steps)


def _keep_peers(facts: MachineFacts, spec: DeploymentSpec, keys: TunnelKeys) -> Changes:
    """Write the other nodes' keys, addresses and ends where they differ.

    A key that a node of this run is still to make differs too.
    """

    def text() -> bytes:
        return tunnel_peers(spec.inventory, spec.name, keys.known).encode()

    now = facts.files.get(PEERS_PATH)
    to_come = keys.replaced | (spec.takes_part - set(keys.known))
    if to_come or now is None or now.content != text():
        yield Change(
            "file",
            PEERS_PATH,
            "create" if now is None else "change",
            f"{len(spec.inventory.nodes) - 1} other nodes",
            (Upload(f"write {PEERS_PATH}", text, PEERS_PATH, 0o600), _AGAIN),
        )


def _opened(what: str, script: str) -> Change:
    """The change of a table of before, until the firewall's own phase replaces it."""
    return Change(
        "firewall", "tunnel", "create", "until its rules are replaced", (Shell(what, script),)
    )


def _plan_keys(spec: DeploymentSpec, facts: MachineFacts) -> Changes:
    if spec.inventory.encrypted:
        assert spec.keys is not None  # `open_cluster` reads them
        yield from keep_folder(facts, TUNNEL_FOLDER, 0o700)
        yield from _keep_key(facts, spec.name, spec.keys)


def _plan(spec: DeploymentSpec, facts: MachineFacts) -> Changes:
    inventory = spec.inventory
    if not inventory.encrypted:
        if UNIT_PATH in facts.files:  # mounts move out of the tunnel before it goes
            nodes = ", ".join(sorted(inventory.links.values()))
            accept = f"input ip saddr {{ {nodes} }} tcp dport {NFS_PORT} accept"
            rule = quoted(f"insert rule inet {TABLE} {accept}")
            yield _opened("let NFS in beside the tunnel", f"nft {rule} 2>/dev/null || :")
        return
    assert spec.keys is not None
    if (
        facts.firewall not in (None, firewall_mark(inventory, spec.name))
        and UNIT_PATH not in facts.files
    ):
        elements = ", ".join(sorted(inventory.hosts.values()))  # NFS is mounted within
        script = quoted("nft", f"add element inet {TABLE} nodes {{ {elements} }}")
        yield _opened("let the tunnel's addresses in", script)
    unit = tunnel_unit(inventory, spec.name, in_kernel=bool(facts.more.get(TUNNEL_MODULE)))
    yield from keep_file(facts, TUNNEL_SCRIPT, tunnel_script().encode(), 0o600, then=(_AGAIN,))
    yield from _keep_peers(facts, spec, spec.keys)
    yield from keep_unit_files(facts, [(UNIT_PATH, unit)])
    yield from RunningUnit(TUNNEL_UNIT, UNIT_PATH, unit, hint=_HINT).changes(facts)


def _plan_end(spec: DeploymentSpec, facts: MachineFacts) -> Changes:
    """Yield the end of the tunnel, after the mounts and the roles have left it.

    An NFS mount whose server is out of reach cannot be taken away.
    """
    if spec.inventory.encrypted:
        return
    ended = Shell("end the tunnel", f"systemctl disable --now {TUNNEL_UNIT} 2>/dev/null || :")
    reload = Shell("reload systemd", "systemctl daemon-reload")
    yield from keep_absent(facts, UNIT_PATH, before=(ended,), then=(reload,))
    yield from keep_absent(facts, TUNNEL_SCRIPT)
    yield from keep_absent(facts, PEERS_PATH)
    if TUNNEL_FOLDER in facts.files:
        keys = spec.keys or TunnelKeys()
        yield Change(
            "key",
            "WireGuard",
            "remove",
            "not in the inventory any more",
            (
                Shell(f"remove {TUNNEL_FOLDER}", quoted(*remove(TUNNEL_FOLDER))),
                Call("forget its public key", lambda _: keys.forget([spec.name])),
            ),
        )


_UNDO = f"""\
systemctl stop {TUNNEL_UNIT} 2>/dev/null
ip link delete {TUNNEL_INTERFACE} 2>/dev/null
"""


KEYS = Subject("keys of the tunnel", "prepare", plan=_plan_keys)
TUNNEL = Subject(
    "tunnel",
    "transport",
    _SCRIPT,
    {
        KEY: _public_key,
        TUNNEL_MODULE: lambda text: text.strip() == "kernel",
        NETWORKS: _networks,
    },
    _check,
    _plan,
    _UNDO,
    lambda spec: Questions(
        files=(TUNNEL_FOLDER, PEERS_PATH, TUNNEL_SCRIPT),
        units=(TUNNEL_UNIT,),
        packages=(IN_THE_KERNEL, IN_USER_SPACE),
    ),
)
TUNNEL_END = Subject("end of the tunnel", "services", plan=_plan_end)
