"""The monitor's Prometheus, the node exporters that it reads, and the keys that let it in. Pure.

The cluster's token lies on its coordinator's node, and the key of each role beside it:
docs/security.md says what they open. systemd gives them to the units, so that no account reads
them.
"""

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from core.control.client import key_of
from core.control.own_state import is_token
from deploy.cluster.places import CONTROL_KEYS, CONTROL_TOKEN, MONITOR_ACCOUNT, account_numbers
from deploy.common.command_line import quoted
from deploy.converge.machine_facts import MachineFacts, Questions, Texts
from deploy.converge.resources import (
    RunningUnit,
    all_written,
    keep_absent,
    keep_folder,
    keep_masked,
    keep_secret,
    keep_unit_files,
    until_it_listens,
)
from deploy.converge.subject import (
    Change,
    Changes,
    DeploymentSpec,
    Found,
    Shell,
    Subject,
    Upload,
)
from deploy.monitor.files import (
    PASSWORD,
    READY,
    WEB,
    prometheus_files,
    ready_program,
    web_configuration,
)
from deploy.render import units
from deploy.render.network import NODE_EXPORTER_PORT
from deploy.render.units import NODE_EXPORTER as PACKAGE

if TYPE_CHECKING:
    from core.inventory import Inventory, Task


UNIT = f"{PACKAGE}.service"


def _exporter_findings(spec: DeploymentSpec, facts: MachineFacts) -> Found:
    holder = facts.listening.get(NODE_EXPORTER_PORT)
    if not spec.inventory.deployment.node_exporter or holder is None:
        return
    unit = facts.unit(UNIT)
    if unit is None or not holder.startswith(f"process {unit.pid} "):
        yield (
            "problem",
            "port",
            f"port {NODE_EXPORTER_PORT} of the node exporter is taken by {holder}: stop it,"
            " or set `deployment.node_exporter: false`",
        )


def _plan_exporter(spec: DeploymentSpec, facts: MachineFacts) -> Changes:
    if spec.inventory.deployment.node_exporter:
        until = until_it_listens(UNIT, NODE_EXPORTER_PORT)
        yield from RunningUnit(UNIT, until=until).changes(facts)


NODE_EXPORTER = Subject(
    "node exporter",
    "services",
    check=_exporter_findings,
    plan=_plan_exporter,
    questions=lambda spec: Questions(units=(UNIT,), packages=(PACKAGE,)),
)


def key_path(task: "Task") -> str:
    """Return where the key of a role lies on its node."""
    return f"{CONTROL_KEYS}/{task.role}-{task.index}"


def secret_paths(tasks: Sequence["Task"], coordinates: bool) -> Texts:
    """Return the secrets of a node with these roles."""
    key_paths = tuple(map(key_path, tasks))
    if coordinates:
        return (CONTROL_TOKEN, *key_paths)
    return key_paths


def secret_at(facts: MachineFacts, path: str) -> str | None:
    """Return the secret that a node has at `path`; None where it has none."""
    file = facts.files.get(path)
    if file is None or file.content is None:
        return None
    text = file.content.decode("ascii", errors="replace").strip()
    if is_token(text):
        return text
    return None


def token_of(inventory: "Inventory", facts: Mapping[str, MachineFacts]) -> str | None:
    """Return the token that the coordinator's node has, or a new one.

    It is None where that node takes no part: then the others keep what they have.
    """
    coordinator = inventory.of_role("coordinator")[0].node
    if coordinator not in facts:
        return None
    return secret_at(facts[coordinator], CONTROL_TOKEN) or secrets.token_hex(32)


def key_for(task: "Task", token: str | None, facts: MachineFacts) -> str | None:
    """Return the key that a role has to have; without a token the one that it has."""
    return key_of(token, task.name) or secret_at(facts, key_path(task))


MONITOR_READ_MARK = f"{units.MONITOR_FOLDER}/read"
"""The SHA-256 of the texts that a running Prometheus has read."""
MONITOR_PASSWORD = f"{units.MONITOR_FOLDER}/{PASSWORD}"
MONITOR_HINT = f"`journalctl -u {units.MONITOR_UNIT}` there says more"


def _keep_files(facts: MachineFacts, texts: Sequence[tuple[str, str]]) -> Changes:
    """Write what Prometheus reads and differs, and have it read all of it again.

    The last command removes the file lists of other clusters. A mark, written last, records
    that Prometheus has read these texts: a deployment may have been cut off before.
    """
    file_changes = all_written("file", texts, facts, "read by Prometheus")
    mark = facts.files.get(MONITOR_READ_MARK)
    content = "\0".join(word for pair in texts for word in pair)
    digest = hashlib.sha256(content.encode()).hexdigest().encode()
    if not file_changes and mark is not None and mark.content == digest:
        return
    exclusions = " ".join(f"! -name {quoted(path.rpartition('/')[2])}" for path, _ in texts)
    unit = units.MONITOR_UNIT
    script = (
        f"find {units.MONITOR_FOLDER}/targets -name 'pscluster-*.json' {exclusions} -delete; "
        f'case "$(systemctl is-active {unit})" in active | reloading) systemctl reload'
        f" {unit} ;; "
        # It may have read what was there before, and is not up yet for a reload.
        f"activating) systemctl try-restart --no-block {unit} ;; esac"
    )
    reread = (
        Shell("have Prometheus read it", script, 120.0, MONITOR_HINT),
        Upload(f"write {MONITOR_READ_MARK}", digest, MONITOR_READ_MARK),
    )
    if file_changes:
        file_changes[-1] = replace(file_changes[-1], steps=(*file_changes[-1].steps, *reread))
    else:
        file_changes.append(
            Change("file", units.MONITOR_FOLDER, "change", "Prometheus has not read it yet", reread)
        )
    yield from file_changes


def _monitor_findings(spec: DeploymentSpec, facts: MachineFacts) -> Found:
    if not spec.watches:
        return
    port = spec.inventory.monitor.port
    cluster_unit = facts.unit(units.MONITOR_UNIT)
    package_unit = facts.unit(units.MONITOR_PACKAGE_UNIT)
    if package_unit is not None and package_unit.running:
        yield (
            "problem",
            "monitor",
            f"{units.MONITOR_PACKAGE_UNIT} runs here for another user, and the cluster's own"
            " would take its place: `sudo systemctl disable --now prometheus` there, or give"
            " the role to another node and this one's Prometheus the files of `fab deploy"
            " monitor --out DIR`",
        )
    elif (cluster_unit is None or not cluster_unit.running) and port in facts.listening:
        yield (
            "problem",
            "port",
            f"port {port} of the monitor is taken by {facts.listening[port]}: stop it, or"
            " choose another as `monitor.port`",
        )


def _plan_package(spec: DeploymentSpec, facts: MachineFacts) -> Changes:
    if spec.watches:
        yield from keep_masked(
            facts, [units.MONITOR_PACKAGE_UNIT], "the cluster runs it from a unit of its own"
        )


def _plan_monitor(spec: DeploymentSpec, facts: MachineFacts) -> Changes:
    """Yield what the monitor's folders, files and unit lack; elsewhere they have to be absent.

    A unit there goes with all units that are not wanted any more.
    """
    if not spec.watches:
        yield from keep_absent(facts, units.MONITOR_FOLDER)
        return
    path = units.unit_path(units.MONITOR_UNIT)
    unit = units.monitor_unit(spec.inventory, "memory" in facts.controllers)
    password = secret_at(facts, MONITOR_PASSWORD) or secrets.token_hex(32)
    yield from keep_folder(facts, units.MONITOR_FOLDER)
    yield from keep_folder(facts, units.MONITOR_DATA, 0o750, MONITOR_ACCOUNT, whole=True)
    yield from keep_secret(facts, MONITOR_PASSWORD, password, MONITOR_ACCOUNT)
    yield from _keep_files(facts, _files(spec, password))
    yield from keep_unit_files(facts, [(path, unit)])
    running = RunningUnit(
        units.MONITOR_UNIT,
        path,
        unit,
        deadline_seconds=units.MONITOR_START_SECONDS + 30.0,
        hint=MONITOR_HINT,
        until=until_it_listens(units.MONITOR_UNIT, spec.inventory.monitor.port),
        account=account_numbers(spec.inventory)[MONITOR_ACCOUNT],
    )
    yield from running.changes(facts)


def _files(spec: DeploymentSpec, password: str = "") -> tuple[tuple[str, str], ...]:
    """Return path and text of what Prometheus reads, `prometheus.yml` last."""
    texts = {
        READY: ready_program(),
        WEB: web_configuration(password),
        **prometheus_files(spec.inventory),
    }
    return tuple((f"{units.MONITOR_FOLDER}/{name}", text) for name, text in texts.items())


def _monitor_questions(spec: DeploymentSpec) -> Questions:
    packages = (units.MONITOR_PACKAGE,)
    if not spec.watches:
        return Questions(packages=packages)
    return Questions(
        files=(units.MONITOR_DATA, *dict(_files(spec)), MONITOR_PASSWORD, MONITOR_READ_MARK),
        units=(units.MONITOR_UNIT, units.MONITOR_PACKAGE_UNIT),
        packages=packages,
    )


MONITOR_PACKAGE = Subject("monitor package", "prepare", plan=_plan_package)
MONITOR = Subject(
    "monitor",
    "monitor",
    check=_monitor_findings,
    plan=_plan_monitor,
    questions=_monitor_questions,
)
