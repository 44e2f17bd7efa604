"""What the node with the role `monitor` has to be like, and what is left of it elsewhere. Pure."""

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from deploy.cluster.places import SERVICE_USER
from deploy.common.command_line import quoted
from deploy.converge.change import Change, Resource, Shell, Upload
from deploy.converge.machine_facts import MachineFacts
from deploy.converge.resources import Absent, Folder, Masked, Running, UnitFiles, all_written
from deploy.monitor.files import prometheus_files
from deploy.render import units

if TYPE_CHECKING:
    from cluster.inventory import Inventory

_OURS = "the cluster runs it from a unit of its own"
READ_MARK = f"{units.MONITOR_FOLDER}/read"
"""The SHA-256 of the texts that a running Prometheus has read."""
_HINT = f"`journalctl -u {units.MONITOR_UNIT}` there says more"


@dataclass(frozen=True)
class MonitorFiles:
    """The folder that Prometheus reads, and that a running one has read it."""

    texts: tuple[tuple[str, str], ...]

    def changes(self, facts: MachineFacts) -> tuple[Change, ...]:
        """Write what differs; with the last one lists of other clusters go, and Prometheus reads all of it again.

        That it has read these very texts says a mark, written last: a deployment may have been cut off before that.
        """
        made = all_written("file", self.texts, facts, "read by Prometheus")
        mark, digest = facts.files.get(READ_MARK), self._digest()
        if not made and mark is not None and mark.content == digest:
            return ()
        reread = (
            Shell("have Prometheus read it", self._reread(), 120.0, _HINT),
            Upload(f"write {READ_MARK}", digest, READ_MARK),
        )
        if made:
            made[-1] = replace(made[-1], steps=(*made[-1].steps, *reread))
        else:
            made.append(Change("file", units.MONITOR_FOLDER, "change", "Prometheus has not read it yet", reread))
        return tuple(made)

    def _digest(self) -> bytes:
        return hashlib.sha256("\0".join(word for pair in self.texts for word in pair).encode()).hexdigest().encode()

    def _reread(self) -> str:
        kept = " ".join(f"! -name {quoted(path.rpartition('/')[2])}" for path, _ in self.texts)
        unit = units.MONITOR_UNIT
        return (
            f"find {units.MONITOR_FOLDER}/targets -name 'pscluster-*.json' {kept} -delete; "
            f'case "$(systemctl is-active {unit})" in active | reloading) systemctl reload {unit} ;; '
            # It may have read what was there before, and is not up yet for a reload.
            f"activating) systemctl try-restart --no-block {unit} ;; esac"
        )


def files_on_node(inventory: "Inventory") -> tuple[tuple[str, str], ...]:
    """Path and text of what Prometheus reads, `prometheus.yml` last."""
    return tuple((f"{units.MONITOR_FOLDER}/{name}", text) for name, text in prometheus_files(inventory).items())


def paths_on_node(inventory: "Inventory") -> tuple[str, ...]:
    """The files that a node is asked for."""
    return (*(path for path, _ in files_on_node(inventory)), READ_MARK)


def preparation() -> tuple[Resource, ...]:
    """Before the package comes and starts its own service."""
    return (Masked((units.MONITOR_PACKAGE_UNIT,), _OURS),)


def monitoring(inventory: "Inventory", node: str, facts: MachineFacts) -> tuple[Resource, ...]:
    """The phase `monitor` on one node."""
    if node != inventory.monitor_node:
        return (Absent(units.MONITOR_FOLDER),)  # its unit goes with all units that are not wanted any more
    unit = units.monitor_unit(inventory, "memory" in facts.controllers)
    return (
        Folder(units.MONITOR_FOLDER),
        Folder(units.MONITOR_DATA, mode=0o750, owner=SERVICE_USER),
        MonitorFiles(files_on_node(inventory)),
        UnitFiles(((units.unit_path(units.MONITOR_UNIT), unit),)),
        Running(
            units.MONITOR_UNIT,
            units.unit_path(units.MONITOR_UNIT),
            unit,
            deadline_seconds=units.MONITOR_START_SECONDS + 30.0,
            hint=_HINT,
        ),
    )
