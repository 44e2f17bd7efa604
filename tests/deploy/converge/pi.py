"""A Raspberry Pi as its facts show it, untouched or after changes: what each step of a change leaves there.

Other tests run the scripts themselves (tests/deploy/over_ssh, the lab); here a script stands for what it says it does.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cluster.inventory import Inventory, load
from deploy.cluster.places import ENVIRONMENTS, UNIT_FOLDER
from deploy.common.project import ROOT
from deploy.converge.change import Change, Publish, Shell, Upload
from deploy.converge.code import ReleaseChoice
from deploy.converge.deployment import PHASES, plan
from deploy.converge.desired import Machines
from deploy.converge.machine_facts import FileFact, MachineFacts, MountFact, UnitFact
from deploy.converge.publication import Publication
from deploy.converge.resources import own_fstab_lines
from deploy.release.code_wheel import CodeWheel
from deploy.release.wheelhouse import Wheelhouse
from deploy.render import firewall
from tests.inventory.cases import machine

GIGABYTE = 10**9
BOOTED_SECONDS = 1_800_000_000.0
ENVIRONMENT = "0123456789abcdef"

Cluster = dict[str, MachineFacts]
Plans = Mapping[str, Mapping[str, Sequence[Change]]]


@dataclass(frozen=True)
class KnownRelease(ReleaseChoice):
    """A release whose environment has a known key: hashing the list of packages is another test's."""

    def environment_for(self, facts: MachineFacts, *, serves: bool = False) -> str | None:
        return None if facts.python_version is None else ENVIRONMENT


def release(key: str = "feedfacefeedface") -> ReleaseChoice:
    return KnownRelease(CodeWheel(Path("pscluster.whl"), key, "0" * 64, "1.0"), "")


class KnownWheelhouse(Wheelhouse):
    """One that is not on this disk."""

    def sums(self) -> str:
        return f"{'0' * 64}  a.whl\n"


WHEELHOUSE = KnownWheelhouse(Path("wheels"), ENVIRONMENT, "3.11", "aarch64", "0" * 64, {"a.whl": 1000}, 1_700_000_000)
WHEELS = Publication("wheels", ENVIRONMENT, ())


def thesis(*overrides: str) -> Inventory:
    """The shipped inventory of sixteen Pis."""
    return load(ROOT / "inventory.yaml", overrides, check_interfaces=False, machine=machine())


def wish_for(inventory: Inventory, key: str = "feedfacefeedface") -> Machines:
    return Machines(inventory, release(key), (WHEELS,), {ENVIRONMENT: WHEELHOUSE})


def untouched(address: str = "192.168.1.16", **changes: Any) -> MachineFacts:
    """Raspberry Pi OS bookworm on a Pi 3B+, as it comes from the card."""
    facts = MachineFacts(
        os_id="debian",
        os_version="12",
        machine="aarch64",
        bits=64,
        kernel="6.12.47+rpt-rpi-v8",
        model="Raspberry Pi 3 Model B Plus Rev 1.3",
        python="3.11.2",
        python_bits=64,
        cores=4,
        memory_bytes=950_000_000,
        available_bytes=700_000_000,
        controllers=("cpuset", "cpu", "io", "pids"),
        cmdline_path="/boot/firmware/cmdline.txt",
        clock_offset_seconds=0.2,
        clock_error_seconds=0.5,
        clock_synchronized=True,
        disk_free_bytes={ENVIRONMENTS: 20 * GIGABYTE, "/srv/pscluster": 20 * GIGABYTE},
        addresses={"lo": ("127.0.0.1",), "eth0": (address,)},
        users={},
        uid_owner=None,
        gid_owner=None,
        packages={},
        files={},
        units={},
        mounts={"/": MountFact("/dev/mmcblk0p2", "ext4", "179:2")},
        fstab=("proc /proc proc defaults 0 0", "PARTUUID=1-02 / ext4 defaults,noatime 0 1"),
        exports=(),
        firewall=None,
        environments=(),
        release_environments={},
        current=None,
        published=(),
        listening={22: "process 700 (sshd)"},
        temperature_celsius=48.0,
        throttled=0,
    )
    return replace(facts, **changes)


def untouched_cluster(inventory: Inventory) -> Cluster:
    return {node.name: untouched(inventory.hosts[node.name]) for node in inventory.nodes}


def converged(wish: Machines, cluster: Cluster) -> tuple[Cluster, Plans]:
    """The cluster after one deployment, and what was planned for it; nodes that are new are untouched Pis."""
    cluster = {name: cluster.get(name) or untouched(wish.inventory.hosts[name]) for name in wish.inventory.hosts}
    plans = plan(wish, cluster)
    for phase in PHASES:
        for name, changes in plans[phase].items():
            for change in changes:
                cluster[name] = after(cluster[name], change)
    return cluster, plans


def all_changes(plans: Plans) -> list[tuple[str, Change]]:
    """Node and change, in order of the phases."""
    return [(name, one) for phase in PHASES for name, changes in plans[phase].items() for one in changes]


def after(facts: MachineFacts, change: Change) -> MachineFacts:
    """The node when the change was carried out."""
    for step in change.steps:
        match step:
            case Upload(content=bytes()):
                assert isinstance(step.content, bytes)
                facts = _with_file(facts, step.path, FileFact("file", step.mode, step.owner, step.owner, step.content))
            case Publish():
                facts = replace(facts, published=(*facts.published, step.folder))
            case Shell():
                facts = _after_script(facts, change, step.script)
    return facts


def _with_file(facts: MachineFacts, path: str, file: FileFact) -> MachineFacts:
    return replace(facts, files={**facts.files, path: file})


def _after_script(facts: MachineFacts, change: Change, script: str) -> MachineFacts:
    if found := re.search(r"FILE_VERBS\)\)' folder (\S+) (\d+) (\w+)", script):
        facts = _with_file(facts, found[1], FileFact("folder", int(found[2], 8), found[3], found[3]))
    match change.kind, change.subject:
        case "file", path if path.endswith("/folders"):
            mark = shlex.split(script[script.index("echo ") :])[1].rstrip(";")
            facts = _with_file(facts, path, FileFact("file", 0o644, "root", "root", f"{mark}\n".encode()))
        case "unit", names if change.action == "mask":
            for name in names.split(", "):
                facts = _with_unit(facts, name, load="masked", enabled="masked")
        case "package", names:
            facts = replace(facts, packages={**facts.packages, **dict.fromkeys(names.split(", "), "1.0")})
            for package, unit in (("nfs-kernel-server", "nfs-server"), ("prometheus-node-exporter",) * 2):
                if package in names.split(", "):
                    facts = _with_unit(facts, f"{unit}.service", active="active", sub="running", enabled="enabled")
        case "user", name:
            uid = int(change.detail.rpartition(" ")[2])
            facts = replace(facts, users={name: (uid, uid)}, uid_owner=name, gid_owner=name)
        case "mount", "/etc/fstab":
            text = shlex.split(script[script.index("printf %s ") :])[2]
            kept = [line for line in facts.fstab if line not in own_fstab_lines(facts.fstab)]
            facts = replace(facts, fstab=(*kept, *text.splitlines()))
        case "mount", path:
            shown = MountFact("systemd-1", "autofs", "0:40")
            if 'start "$(systemd-escape -p --suffix=mount' in script:
                device, place = facts.place(change.detail.split()[1].rstrip(","))
                shown = MountFact(facts.mounts["/"].source, "ext4", device, place)
            facts = replace(facts, mounts={**facts.mounts, path: shown})
        case "export", path if "exportfs" in script:
            text = (facts.files[path].content or b"").decode()
            lines = [line.split() for line in text.splitlines() if not line.startswith("#")]
            facts = replace(facts, exports=tuple(f"{words[0]} {one}" for words in lines for one in words[1:]))
        case "environment", key:
            facts = replace(facts, environments=(*facts.environments, key))
        case "release", key:
            environments = {**facts.release_environments, key: change.detail.rpartition(" ")[2]}
            facts = replace(facts, release_environments=environments)
        case "link", _:
            facts = replace(facts, current=change.detail.split()[1].rstrip(","))
        case "firewall", _ if "mv -f" in script:
            files = dict(facts.files)
            files[firewall.PATH] = files.pop(f"{firewall.PATH}.trial")
            loaded = firewall.loaded_mark((files[firewall.PATH].content or b"").decode())
            facts = replace(facts, files=files, firewall=loaded)
    return _after_systemctl(_after_removal(facts, script), script)


def _after_removal(facts: MachineFacts, script: str) -> MachineFacts:
    found = re.search(r"FILE_VERBS\)\)' remove (\S+)", script)
    if found is None:
        return facts
    (path,) = shlex.split(found[1])
    return replace(facts, files={name: file for name, file in facts.files.items() if name != path})


def _after_systemctl(facts: MachineFacts, script: str) -> MachineFacts:
    if "systemctl daemon-reload" in script:
        facts = _reloaded(facts)
    for verb, name in re.findall(
        r"systemctl (?:--\S+ )*(enable|disable|start|restart) (?:--\S+ )*(pscluster\S+|nfs\S+)", script
    ):
        if f"{UNIT_FOLDER}/{name}" in facts.files and name not in facts.units:
            facts = _with_unit(facts, name)  # systemd reads a unit that it does not know when it is named
        match verb:
            case "enable":
                facts = _with_unit(facts, name, enabled="enabled")
            case "disable":
                facts = _with_unit(facts, name, enabled="disabled", active="inactive", sub="dead", pid=0)
                facts = replace(facts, listening=_listening(facts))
            case _:
                assert name.startswith("nfs") or name in facts.units, f"{name}: systemd knows no such unit"
                # A process is started after its file was written.
                began = BOOTED_SECONDS + 100.0
                facts = _with_unit(
                    facts, name, active="active", sub="running", pid=1000, release=facts.current, started_seconds=began
                )
                facts = replace(facts, listening=_listening(facts))
    return facts


def _reloaded(facts: MachineFacts) -> MachineFacts:
    paths = (path for path, file in facts.files.items() if path.startswith(UNIT_FOLDER) and file.kind == "file")
    names = {path.rpartition("/")[2] for path in paths if path.endswith(".service") and "@" not in path}
    gone = {name for name in facts.units if name.startswith("pscluster-") and name not in names}
    facts = replace(facts, units={name: unit for name, unit in facts.units.items() if name not in gone})
    for name in names:
        facts = _with_unit(facts, name, needs_reload=False)
    return facts


def _with_unit(facts: MachineFacts, name: str, **changes: Any) -> MachineFacts:
    fresh = UnitFact("loaded", "inactive", "dead", "disabled", False, "success", 0, 0)
    return replace(facts, units={**facts.units, name: replace(facts.units.get(name, fresh), **changes)})


def _listening(facts: MachineFacts) -> dict[int, str]:
    """As `ss` tells it: by process, which knows no units."""
    found = {22: "process 700 (sshd)"}
    for name, unit in facts.units.items():
        file = facts.files.get(f"{UNIT_FOLDER}/{name}")
        if unit.running and file is not None:
            ports = re.findall(rb" --(?:metrics-)?port (\d+)", file.content or b"")
            found |= {int(port): "process 1000 (python)" for port in ports}
    return found
