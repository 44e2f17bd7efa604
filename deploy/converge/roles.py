"""The roles of a node: their units, the units that are no longer wanted, their ports. Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from deploy.cluster.places import CONTROL_TOKEN, ROLE_ACCOUNT, UNIT_FOLDER, account_numbers
from deploy.common.command_line import quoted
from deploy.converge.change import Resource, Shell
from deploy.converge.control_keys import SecretFile, kept, key_for, key_path, paths
from deploy.converge.firewall import FIREWALL_UNIT_PATH
from deploy.converge.machine_facts import MachineFacts, Questions
from deploy.converge.resources import RELOAD, Absent, RunningUnit, UnitFiles
from deploy.converge.subject import DRIFT, DeploymentSpec, Found, NodeSpec, Subject
from deploy.converge.wireguard import UNIT_PATH as TUNNEL_UNIT_PATH
from deploy.render import units

if TYPE_CHECKING:
    from core.inventory import Task

ADDRESSES_PATH = f"{UNIT_FOLDER}/pscluster-.service.d/10-addresses.conf"
SLICE_PATH = f"{UNIT_FOLDER}/pscluster.slice"


def _check(spec: NodeSpec, facts: MachineFacts) -> Found:
    yield from _foreign_files(facts)
    own_ports = _ports_of_our_units(facts)
    for task in spec.tasks:
        unit = facts.unit(units.unit_name(task))
        if task.role == "coordinator" or (
            unit is not None and unit.active in ("active", "activating")
        ):
            continue
        for port in (task.port, task.metrics_port):
            if port in facts.listening and port not in own_ports:
                line = f"port {port} of {task.name} is taken by {facts.listening[port]}"
                yield "problem", "port", f"{line}: stop it, or choose another port"


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
            line = f"{path} changes how every service runs, {unit} too"
            yield "warning", "units", f"{line}: see that it leaves its account and its cage alone"


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


def _resources(spec: DeploymentSpec, node: str, facts: MachineFacts) -> Sequence[Resource]:
    tasks = spec.tasks(node)
    keys = {task: key_for(task, spec.token, facts) for task in tasks}
    texts = {
        units.unit_path(units.unit_name(task)): units.role_unit(
            spec.inventory, task, facts.systemd, keys[task]
        )
        for task in tasks
    }
    token = None
    if spec.coordinates(node):
        token = spec.token or kept(facts, CONTROL_TOKEN)
    files = {
        **texts,
        SLICE_PATH: units.slice_unit("memory" in facts.controllers),
        ADDRESSES_PATH: units.addresses_drop_in(spec.inventory),
    }
    if spec.runs_jobs(node):
        unit = units.job_unit(
            spec.inventory, coordinates=spec.coordinates(node), token=token is not None
        )
        files[units.unit_path(units.JOB_UNIT)] = unit
    return (
        *_stale_units(facts, {*files, *_paths_of_others(spec, node)}),
        *(SecretFile(key_path(task), key) for task, key in keys.items() if key is not None),
        *([] if token is None else [SecretFile(CONTROL_TOKEN, token)]),
        UnitFiles(tuple(files.items())),
        *(_role(spec, task, texts) for task in tasks),
    )


def _role(spec: DeploymentSpec, task: "Task", texts: Mapping[str, str]) -> RunningUnit:
    name = units.unit_name(task)
    path = units.unit_path(name)
    hint = f"`journalctl -u {name}` there, or `fab deploy logs --node {task.node}`, says more"
    account = account_numbers(spec.inventory)[ROLE_ACCOUNT]
    return RunningUnit(name, path, texts[path], spec.release.code.key, hint=hint, account=account)


def _paths_of_others(spec: DeploymentSpec, node: str) -> list[str]:
    """Return the unit files of ours that other phases write."""
    unit_paths = [FIREWALL_UNIT_PATH, TUNNEL_UNIT_PATH]
    if spec.watches(node):
        unit_paths.append(units.unit_path(units.MONITOR_UNIT))
    if spec.recognises(node):
        unit_paths.append(units.unit_path(units.SERVICE_UNIT))
    return unit_paths


def _stale_units(facts: MachineFacts, expected_paths: set[str]) -> list[Absent]:
    """Return the removal of each unit of ours outside `expected_paths`; it is stopped first."""
    removals = []
    for path, file in facts.files.items():
        if not path.startswith(f"{UNIT_FOLDER}/pscluster"):
            continue
        if file.kind == "file" and path not in expected_paths:
            name = path.rpartition("/")[2]
            script = f"systemctl disable --now {quoted(name)} 2>/dev/null || :"
            removals.append(Absent(path, before=(Shell(f"stop {name}", script),), then=(RELOAD,)))
    return removals


def _questions(spec: DeploymentSpec, node: str) -> Questions:
    names = [units.unit_name(task) for task in spec.tasks(node)]
    secret = paths(spec.tasks(node), spec.coordinates(node))
    return Questions(files=(ADDRESSES_PATH, *secret), units=tuple(names))


ROLES = Subject("roles", "services", check=_check, resources=_resources, questions=_questions)
