"""The firewall of a node: the loaded table, the new rules, the way in that stays open. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deploy.cluster.places import UNIT_FOLDER, account_numbers
from deploy.common.command_line import filled, quoted
from deploy.converge.change import Change, Reconnect, Resource, Shell, Upload, text_diff
from deploy.converge.machine_facts import MachineFacts, Questions
from deploy.converge.resources import Absent, RunningUnit, UnitFiles
from deploy.converge.subject import DeploymentSpec, Found, NodeAnswer, NodeSpec, Subject
from deploy.render import firewall
from deploy.rooted.commands import make_folder

if TYPE_CHECKING:
    from core.inventory import Inventory

FIREWALL_UNIT_PATH = f"{UNIT_FOLDER}/{firewall.UNIT}"
ROLLBACK_SECONDS = 60
LOADED = f"{firewall.PATH}.loaded"
"""The digest of what nft listed right after our rules were loaded."""
CHANGED = "changed"
"""In the place of the rules' hash, where nft lists others than it did then."""


def _undo() -> str:
    return f"""\
systemctl stop pscluster-firewall-undo.timer 2>/dev/null
nft delete table inet {firewall.TABLE} 2>/dev/null
rm -f /run/pscluster-firewall.before
"""


def _script(questions: Questions) -> str:
    return f"""\
section firewall
listed=$(nft -s list table inet {firewall.TABLE} 2>/dev/null) &&
    if [ "$(printf '%s\\n' "$listed" | sha256sum)" = "$(cat {LOADED} 2>/dev/null)" ]; then
        printf '%s\\n' "$listed" | grep -o 'pscluster [0-9a-f]*'
    else
        echo {CHANGED}
    fi
"""


def _read(answer: NodeAnswer) -> Mapping[str, object]:
    words = answer.sections["firewall"].split()
    return {"firewall": words[-1] if words else None}


def _check(spec: NodeSpec, facts: MachineFacts) -> Found:
    """Check who listens here: the port of a login may be another machine's, which forwards it."""
    inventory = spec.inventory
    ways = _ways(inventory, spec.name, facts)
    if (
        inventory.deployment.firewall
        and ways
        and ways <= firewall.closed_ports(inventory, spec.name)
    ):
        ports = ", ".join(map(str, sorted(ways)))
        line = (
            f"the SSH server listens on port {ports} alone, which the firewall will close to all"
            " but the nodes"
        )
        yield (
            "problem",
            "ssh",
            f"{line}: give the cluster's processes other ports (`ports`), or sshd another",
        )

    for closed in closed_to_others(inventory, spec.name, facts):
        remedy = (
            "give the cluster's processes other ports (`ports`), or the owner's process another"
        )
        yield (
            "warning",
            "firewall",
            f"a start closes {closed} to all but the inventory's nodes: {remedy}",
        )


def closed_to_others(inventory: "Inventory", node: str, facts: MachineFacts) -> tuple[str, ...]:
    """Return the ports that the table would close and that other programs than ours listen on.

    The ports of the node's own roles are not among them: where another process has one, the node is
    refused.
    """
    if not inventory.deployment.firewall or facts.firewall == firewall.mark_of(inventory, node):
        return ()
    accounts = {facts.users[name][0] for name in account_numbers(inventory) if name in facts.users}
    ours = {port for port, uid in facts.listening_uids.items() if uid in accounts}
    # The findings of these say more.
    ours |= {firewall.NFS_PORT} | _ways(inventory, node, facts) | _own_ports(inventory, node)
    if inventory.deployment.node_exporter and facts.firewall is not None:
        ours.add(firewall.NODE_EXPORTER_PORT)  # a table of ours closes it already
    closed = sorted((firewall.closed_ports(inventory, node) & facts.listening.keys()) - ours)
    return tuple(f"port {port} of {facts.listening[port]}" for port in closed)


def _ways(inventory: "Inventory", node: str, facts: MachineFacts) -> set[int]:
    """Return the ports of the SSH server, which root has.

    With socket activation it is systemd that listens.
    """
    ssh_port = inventory.node(node).ssh.port or inventory.ssh.port
    return {
        port
        for port, holder in facts.listening.items()
        if facts.listening_uids.get(port, 0) == 0
        and ("(sshd" in holder or ("(systemd" in holder and port == ssh_port))
    }


def _own_ports(inventory: "Inventory", node: str) -> set[int]:
    """Return the ports of the node's own roles."""
    ports = {
        port
        for task in inventory.tasks()
        if task.node == node
        for port in (task.port, task.metrics_port)
    }
    if inventory.monitor_node == node:
        ports.add(inventory.monitor.port)
    if node in inventory.service_nodes:
        ports |= {inventory.service.port, inventory.service.metrics_port}
    return ports


@dataclass(frozen=True)
class Firewall:
    """The nftables table.

    Should the new rules keep us out, the old ones come back after a minute by themselves.
    """

    rules: str
    closes: tuple[str, ...] = ()
    """What it closes that is not the cluster's."""

    def changes(self, facts: MachineFacts) -> tuple[Change, ...]:
        """Load and keep the rules, unless those very rules are loaded and kept."""
        now = facts.files.get(firewall.PATH)
        if now is None:
            before = None
        else:
            before = now.content
        if before == self.rules.encode() and facts.firewall == firewall.loaded_mark(self.rules):
            return ()
        trial = f"{firewall.PATH}.trial"
        load = filled(
            "converge/firewall_load.sh",
            trial=trial,
            firewall=firewall,
            rollback_seconds=ROLLBACK_SECONDS,
        )
        keep = (
            f"systemctl stop pscluster-firewall-undo.timer; mv -f {trial} {firewall.PATH}; "
            f"mv -f {trial}.loaded {LOADED}; rm -f /run/pscluster-firewall.before"
        )
        steps = (
            Shell("make /etc/pscluster", quoted(*make_folder("/etc/pscluster"))),
            Upload("write the new rules", self.rules.encode(), trial),
            Shell(
                "load the new rules, to be undone in a minute",
                load,
                hint=f"nft refuses them: `sudo nft -c -f {trial}` there says why",
            ),
            Reconnect("log in again through the new rules"),
            Shell("keep the new rules", keep),
        )
        detail = "only the inventory's addresses reach the cluster's ports"
        if self.closes:
            detail += f"; it also closes {', '.join(self.closes)} to all others"
        diff = text_diff(firewall.PATH, before, self.rules.encode())
        return (
            Change(
                "firewall",
                firewall.TABLE,
                "create" if now is None else "change",
                detail,
                steps,
                diff,
            ),
        )


def _resources(spec: DeploymentSpec, node: str, facts: MachineFacts) -> Sequence[Resource]:
    if not spec.inventory.deployment.firewall:
        off = Shell(
            "take the firewall down",
            f"systemctl disable --now {firewall.UNIT} 2>/dev/null || :",
        )
        gone = Shell("drop its table", f"nft delete table inet {firewall.TABLE} 2>/dev/null || :")
        return (Absent(FIREWALL_UNIT_PATH, before=(off, gone)), Absent(firewall.PATH))
    rules = firewall.ruleset(spec.inventory, node)
    return (
        Firewall(rules, closed_to_others(spec.inventory, node, facts)),
        UnitFiles(((FIREWALL_UNIT_PATH, firewall.unit()),)),
        RunningUnit(firewall.UNIT),
    )


def _questions(spec: DeploymentSpec, node: str) -> Questions:
    return Questions(units=(firewall.UNIT,), packages=("nftables",))


FIREWALL = Subject("firewall", "firewall", _script, _read, _check, _resources, _undo, _questions)
