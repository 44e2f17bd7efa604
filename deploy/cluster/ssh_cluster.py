"""`connection: ssh`: one cluster's nodes, its files beside the inventory, and the release they are to run."""

import json
import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.atomic_write import atomic_write
from cluster.errors import UsageError
from cluster.logs.terminal import say
from deploy.cluster.fleet import Fleet
from deploy.cluster.places import shared_folders
from deploy.common.state_folder import StateFolder
from deploy.converge.check import Finding
from deploy.converge.facts import recordings_here
from deploy.converge.memory_estimate import RoleMemory, of_inventory
from deploy.converge.release_choice import ReleaseChoice
from deploy.converge.unfinished_rollback import UnfinishedRollback
from deploy.jobs.attached_job import PendingJobs
from deploy.jobs.prepared_data import PreparedData, prepared_data
from deploy.jobs.request import needs_data
from deploy.release.wheelhouse import Wheelhouse, make_wheelhouse

if TYPE_CHECKING:
    from cluster.inventory import Inventory
    from deploy.converge.deployment import Survey


class SshCluster:
    """The operator's end of a cluster. Making one connects to nobody."""

    def __init__(self, inventory: "Inventory", overrides: Sequence[str] = ()) -> None:
        if inventory.storage is None:
            raise UsageError(
                f"{inventory.path}: no section `storage`: the nodes share data and runs through it; add "
                "`storage: {server: NODE}` and give that node the role storage"
            )
        self.inventory = inventory
        self.overrides = tuple(overrides)
        self.folder = StateFolder.beside(inventory.path, inventory.cluster)

    @property
    def known_hosts(self) -> Path:
        """The pinned host keys."""
        return self.folder.path / "known_hosts"

    @property
    def deployments(self) -> Path:
        """Folder of the recaps."""
        return self.folder.path / "deployments"

    @property
    def pending_jobs(self) -> PendingJobs:
        """The jobs that a `start` has still to submit."""
        return PendingJobs(self.folder.path / "pending_jobs.json")

    @property
    def unfinished_rollback(self) -> UnfinishedRollback:
        """Where the nodes go back to, while not all of them have."""
        return UnfinishedRollback(self.folder.path / "rollback.json")

    def fleet(self) -> Fleet:
        """The nodes; the caller closes it."""
        return Fleet.of(self.inventory, self.known_hosts)

    @cached_property
    def release(self) -> ReleaseChoice:
        """The release made of this checkout."""
        return ReleaseChoice.of_this_checkout()

    def wheelhouse(self, python: str, machine: str) -> Wheelhouse:
        """The wheels for nodes of one kind, downloaded now if they are not in the cache."""
        return make_wheelhouse(self.release.requirements, python, machine, say=lambda line: say(line, error=True))

    @cached_property
    def data(self) -> PreparedData | None:
        """The prepared windows of the inventory's jobs; see `prepared_data`."""
        return prepared_data(self.inventory, shared_folders(self.inventory))

    def job_overrides(self, job: str) -> list[str]:
        """What a job on the nodes has to be told beside the inventory: where its windows lie there."""
        if not needs_data(job) or self.data is None:
            return []
        return [f"jobs.train.data.source={json.dumps(self.data.local)}"]

    def operator_findings(self) -> list[Finding]:
        """What this machine lacks for a start."""
        source = self.inventory.jobs.train.data.source
        if not any(map(needs_data, self.inventory.jobs.order)):
            return []
        found = recordings_here(source)
        return [Finding("ok" if found.holds else "problem", "data", found.line)]

    def memory(self, seen: "Survey") -> RoleMemory:
        """What one process of each role takes for the inventory's model, with the cores that the nodes have."""
        return of_inventory(self.inventory, {name: facts.cores for name, facts in seen.facts.items()})

    def nodes_gone(self) -> tuple[str, ...]:
        """Nodes that a deployment put roles on and that the inventory does not have any more."""
        try:
            known = json.loads(self._nodes_file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return ()
        here = {node.name for node in self.inventory.nodes}
        return tuple(name for name in known if name not in here)

    def remember_nodes(self) -> None:
        """Note the inventory's nodes for `nodes_gone`; those that are gone stay noted until they are reset."""
        names = [*(node.name for node in self.inventory.nodes), *self.nodes_gone()]
        atomic_write(self._nodes_file, json.dumps(names).encode() + b"\n")

    def forget_nodes(self, names: Sequence[str]) -> None:
        """Those nodes were reset."""
        left = [*(node.name for node in self.inventory.nodes), *self.nodes_gone()]
        if self._nodes_file.exists():
            atomic_write(self._nodes_file, json.dumps([name for name in left if name not in names]).encode() + b"\n")

    @property
    def _nodes_file(self) -> Path:
        return self.folder.path / "nodes.json"

    def recap_name(self, action: str) -> str:
        """`20261121T224200Z-start`."""
        return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{action}"

    def chosen_nodes(self, limit: Sequence[str]) -> tuple[str, ...]:
        """The nodes that `--limit` names, by node or by role; all without it. Raises UsageError for an unknown name."""
        names = [node.name for node in self.inventory.nodes]
        if not limit:
            return tuple(names)
        of_role: dict[str, set[str]] = {"storage": set()}
        for node in self.inventory.nodes:
            for entry in node.roles:
                of_role.setdefault(entry.role, set()).add(node.name)
        for task in self.inventory.tasks():
            of_role[task.name] = {task.node}
        chosen: set[str] = set()
        for word in [part for given in limit for part in given.split(",") if part]:
            if word in names:
                chosen.add(word)
            elif word in of_role:
                chosen |= of_role[word]
            else:
                raise UsageError(f"--limit {word}: expected a node or a role: {', '.join([*names, *of_role])}")
        return tuple(name for name in names if name in chosen)
