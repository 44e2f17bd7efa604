"""The roles of a node and its firewall: units, those no longer wanted, ports and who reaches them.

The way in stays open: rules that shut the operator out are undone. Pure.
"""

import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from deploy.cluster.places import CONTROL_TOKEN, ROLE_ACCOUNT, UNIT_FOLDER, account_numbers
from deploy.common.command_line import Inline, filled, quoted
from deploy.converge.machine_facts import MachineFacts, Questions, Texts
from deploy.converge.monitor import key_for, key_path, secret_at, secret_paths
from deploy.converge.resources import (
    RELOAD,
    RunningUnit,
    keep_absent,
    keep_secret,
    keep_unit_files,
)
from deploy.converge.subject import (
    DRIFT,
    Change,
    Changes,
    DeploymentSpec,
    Found,
    Reconnect,
    Shell,
    Subject,
    Upload,
    text_diff,
)
from deploy.converge.wireguard import UNIT_PATH as TUNNEL_UNIT_PATH
from deploy.render import units
from deploy.render.network import (
    FIREWALL_UNIT,
    NFS_PORT,
    NODE_EXPORTER_PORT,
    OPEN_CONNECTIONS,
    RULES_PATH,
    TABLE,
    closed_ports,
    firewall_mark,
    firewall_unit,
    loaded_mark,
    ruleset,
)
from deploy.rooted.commands import make_folder

if TYPE_CHECKING:
    from core.inventory import Inventory


FIREWALL_UNIT_PATH = f"{UNIT_FOLDER}/{FIREWALL_UNIT}"
ROLLBACK_SECONDS = 60
LOADED = f"{RULES_PATH}.loaded"
"""The digest of what nft listed right after our rules were loaded."""
LISTING = (
    f"nft -s list table inet {TABLE} 2>/dev/null |"
    f" sed '/^\\tset {OPEN_CONNECTIONS} {{$/,/^\\t}}$/d'"
)
"""Lists the loaded rules without the connections of now."""
CHANGED = "changed"
"""The mark in place of the rules' hash, where nft lists others than it did then."""


_UNDO_FIREWALL = f"""\
systemctl stop pscluster-firewall-undo.timer 2>/dev/null
nft delete table inet {TABLE} 2>/dev/null
rm -f /run/pscluster-firewall.before
"""


_FIREWALL_SCRIPT = f"""\
section firewall
listed=$({LISTING}) && [ -n "$listed" ] &&
    if [ "$(printf '%s\\n' "$listed" | sha256sum)" = "$(cat {LOADED} 2>/dev/null)" ]; then
        printf '%s\\n' "$listed" | grep -o 'pscluster [0-9a-f]*'
    else
        echo {CHANGED}
    fi
"""


def _loaded_mark(text: str) -> str | None:
    for mark in reversed(text.split()):
        return mark
    return None


def _firewall_findings(spec: DeploymentSpec, facts: MachineFacts) -> Found:
    """Check who listens here: the port of a login may be another machine's, which forwards it."""
    inventory = spec.inventory
    ways = _ways(inventory, spec.name, facts)
    if inventory.deployment.firewall and ways and ways <= closed_ports(inventory, spec.name):
        ports = ", ".join(map(str, sorted(ways)))
        yield (
            "problem",
            "ssh",
            f"the SSH server listens on port {ports} alone, which the firewall will close to"
            " all but the nodes: give the cluster's processes other ports (`ports`), or sshd"
            " another",
        )

    for closed in closed_to_others(inventory, spec.name, facts):
        yield (
            "warning",
            "firewall",
            f"a start closes {closed} to all but the inventory's nodes: give the cluster's"
            " processes other ports (`ports`), or the owner's process another",
        )


def closed_to_others(inventory: "Inventory", node: str, facts: MachineFacts) -> Texts:
    """Return the ports that the table would close and that other programs than ours listen on.

    The ports of the node's own roles are not among them: where another process has one, the node is
    refused.
    """
    if not inventory.deployment.firewall or facts.firewall == firewall_mark(inventory, node):
        return ()
    accounts = {facts.users[name][0] for name in account_numbers(inventory) if name in facts.users}
    exempt_ports = {port for port, uid in facts.listening_uids.items() if uid in accounts}
    # The findings of these say more.
    exempt_ports |= {NFS_PORT} | _ways(inventory, node, facts) | _own_ports(inventory, node)
    if inventory.deployment.node_exporter and facts.firewall is not None:
        exempt_ports.add(NODE_EXPORTER_PORT)  # a table of ours closes it already
    closed = sorted((closed_ports(inventory, node) & facts.listening.keys()) - exempt_ports)
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


def keep_firewall(facts: MachineFacts, rules: str, closes: Sequence[str] = ()) -> Changes:
    """Load and keep the rules, unless those very rules are loaded and kept.

    Should they keep us out, the old ones come back after a minute by themselves. `closes` are the
    ports that they close of others than the cluster.
    """
    now = facts.files.get(RULES_PATH)
    if now is None:
        before = None
    else:
        before = now.content
    if before == rules.encode() and facts.firewall == loaded_mark(rules):
        return
    trial = f"{RULES_PATH}.trial"
    load = filled(
        "converge/firewall_load.sh",
        trial=trial,
        TABLE=TABLE,
        LISTING=Inline(LISTING),
        rollback_seconds=ROLLBACK_SECONDS,
    )
    keep = (
        f"systemctl stop pscluster-firewall-undo.timer; mv -f {trial} {RULES_PATH}; "
        f"mv -f {trial}.loaded {LOADED}; rm -f /run/pscluster-firewall.before"
    )
    steps = (
        Shell("make /etc/pscluster", quoted(*make_folder("/etc/pscluster"))),
        Upload("write the new rules", rules.encode(), trial),
        Shell(
            "load the new rules, to be undone in a minute",
            load,
            hint=f"nft refuses them: `sudo nft -c -f {trial}` there says why",
        ),
        Reconnect("log in again through the new rules"),
        Shell("keep the new rules", keep),
    )
    detail = "only the inventory's addresses reach the cluster's ports"
    if closes:
        detail += f"; it also closes {', '.join(closes)} to all others"
    yield Change(
        "firewall",
        TABLE,
        "create" if now is None else "change",
        detail,
        steps,
        text_diff(RULES_PATH, before, rules.encode()),
    )


def _plan_firewall(spec: DeploymentSpec, facts: MachineFacts) -> Changes:
    if not spec.inventory.deployment.firewall:
        off = Shell(
            "take the firewall down",
            f"systemctl disable --now {FIREWALL_UNIT} 2>/dev/null || :",
        )
        gone = Shell("drop its table", f"nft delete table inet {TABLE} 2>/dev/null || :")
        yield from keep_absent(facts, FIREWALL_UNIT_PATH, before=(off, gone))
        yield from keep_absent(facts, RULES_PATH)
        return
    closes = closed_to_others(spec.inventory, spec.name, facts)
    yield from keep_firewall(facts, ruleset(spec.inventory, spec.name), closes)
    yield from keep_unit_files(facts, [(FIREWALL_UNIT_PATH, firewall_unit())])
    yield from RunningUnit(FIREWALL_UNIT).changes(facts)


FIREWALL = Subject(
    "firewall",
    "firewall",
    _FIREWALL_SCRIPT,
    {"firewall": _loaded_mark},
    _firewall_findings,
    _plan_firewall,
    _UNDO_FIREWALL,
    lambda spec: Questions(units=(FIREWALL_UNIT,), packages=("nftables",)),
)


ADDRESSES_PATH = f"{UNIT_FOLDER}/pscluster-.service.d/10-addresses.conf"
SLICE_PATH = f"{UNIT_FOLDER}/pscluster.slice"


def _role_findings(spec: DeploymentSpec, facts: MachineFacts) -> Found:
    yield from _foreign_files(facts)
    own_ports = _ports_of_our_units(facts)
    for task in spec.tasks:
        unit = facts.unit(units.unit_name(task))
        if unit is not None and unit.active in ("active", "activating"):
            continue
        for port in (task.port, task.metrics_port):
            if port in facts.listening and port not in own_ports:
                yield (
                    "problem",
                    "port",
                    f"port {port} of {task.name} is taken by {facts.listening[port]}: stop"
                    " it, or choose another port",
                )


def _foreign_files(facts: MachineFacts) -> Found:
    """Yield what systemd reads for a unit of ours besides our files, which no start removes.

    Under /usr and /run a system may have drop-ins for all units; the owner's for all, in /etc, are
    not ours to remove.
    """
    of_all: dict[str, str] = {}
    for unit, fact in facts.units.items():
        # The firewall's own undoing, while one waits for it.
        if not unit.startswith("pscluster") or unit.startswith("pscluster-firewall-undo."):
            continue
        own_paths = (f"{UNIT_FOLDER}/{unit.replace('@none.', '@.')}", ADDRESSES_PATH)
        foreign = [path for path in fact.files if path not in own_paths and "pscluster" in path]
        of_all |= {path: unit for path in fact.files if path.startswith("/etc/")}
        if foreign:
            remedy = (
                f"sudo {quoted('rm', '-f', *foreign)} && sudo systemctl daemon-reload && sudo"
                f" {quoted('systemctl', 'try-restart', unit)}"
            )
            line = f"{foreign[0]} changes how {unit} runs, and is not ours: `{remedy}` there"
            yield "problem", DRIFT, line
    for path, unit in of_all.items():
        if "pscluster" not in path:
            yield (
                "warning",
                "units",
                f"{path} changes how every service runs, {unit} too: see that it leaves its"
                " account and its cage alone",
            )


def _ports_of_our_units(facts: MachineFacts) -> set[int]:
    """Return the ports of our units that run.

    One whose role now has another index is stopped before others start.
    """
    texts = [
        facts.files[path].content or b""
        for name, unit in facts.units.items()
        if unit.active in ("active", "activating")
        and (path := units.unit_path(name)) in facts.files
    ]
    return {
        int(port) for text in texts for port in re.findall(rb" --(?:metrics-)?port (\d+)", text)
    }


def _plan_roles(spec: DeploymentSpec, facts: MachineFacts) -> Changes:
    tasks = spec.tasks
    keys = {task: key_for(task, spec.token, facts) for task in tasks}
    texts = {
        units.unit_path(units.unit_name(task)): units.role_unit(
            spec.inventory, task, facts.systemd, keys[task]
        )
        for task in tasks
    }
    token = None
    if spec.coordinates:
        token = spec.token or secret_at(facts, CONTROL_TOKEN)
    files = {
        **texts,
        SLICE_PATH: units.slice_unit("memory" in facts.controllers),
        ADDRESSES_PATH: units.addresses_drop_in(spec.inventory),
    }
    if spec.runs_jobs:
        unit = units.job_unit(spec.inventory, coordinates=spec.coordinates, token=token is not None)
        files[units.unit_path(units.JOB_UNIT)] = unit
    yield from _without_stale_units(facts, {*files, *_paths_of_others(spec)})
    secrets = {key_path(task): key for task, key in keys.items()} | {CONTROL_TOKEN: token}
    for path, secret in secrets.items():
        if secret is not None:
            yield from keep_secret(facts, path, secret)
    yield from keep_unit_files(facts, files.items())
    account = account_numbers(spec.inventory)[ROLE_ACCOUNT]
    release = spec.release.code.key
    for task in tasks:
        name = units.unit_name(task)
        path = units.unit_path(name)
        role = RunningUnit(
            name,
            path,
            texts[path],
            release,
            hint=f"`journalctl -u {name}` there, or `fab deploy logs --node {task.node}`, says"
            " more",
            account=account,
        )
        yield from role.changes(facts)


def _paths_of_others(spec: DeploymentSpec) -> list[str]:
    """Return the unit files of ours that other phases write."""
    unit_paths = [FIREWALL_UNIT_PATH, TUNNEL_UNIT_PATH]
    if spec.watches:
        unit_paths.append(units.unit_path(units.MONITOR_UNIT))
    if spec.recognises:
        unit_paths.append(units.unit_path(units.SERVICE_UNIT))
    return unit_paths


def _without_stale_units(facts: MachineFacts, expected_paths: Collection[str]) -> Changes:
    """Yield the removal of each unit of ours outside `expected_paths`; it is stopped first."""
    for path, file in facts.files.items():
        is_ours = path.startswith(f"{UNIT_FOLDER}/pscluster") and file.kind == "file"
        if is_ours and path not in expected_paths:
            name = path.rpartition("/")[2]
            script = f"systemctl disable --now {quoted(name)} 2>/dev/null || :"
            stopped = Shell(f"stop {name}", script)
            yield from keep_absent(facts, path, before=(stopped,), then=(RELOAD,))


def _role_questions(spec: DeploymentSpec) -> Questions:
    names = [units.unit_name(task) for task in spec.tasks]
    secret = secret_paths(spec.tasks, spec.coordinates)
    return Questions(files=(ADDRESSES_PATH, *secret), units=tuple(names))


ROLES = Subject(
    "roles", "services", check=_role_findings, plan=_plan_roles, questions=_role_questions
)
