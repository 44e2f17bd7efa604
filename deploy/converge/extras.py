"""The environment of a `requirements.txt` on the coordinator's node: locked here, published, installed, kept."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.apps.environments import COMPLETE, KEY
from cluster.errors import ClusterError
from cluster.logs.terminal import say
from deploy.cluster.connector import Connector
from deploy.cluster.fleet import Fleet
from deploy.cluster.places import CURRENT, EXTRAS, shared_folders
from deploy.common.command_line import command, shell
from deploy.common.waiting import waiting_for
from deploy.converge.apply import apply
from deploy.converge.code import INSTALL_SECONDS, JOB_RUNS
from deploy.converge.publication import Published, of_wheelhouse, publisher
from deploy.release.extras import KEPT, Base, Lock, locked
from deploy.release.requirements import MACHINES, PYTHONS, Target
from deploy.release.scripts import RefusedError, install_environment, outcome, prune_extras
from deploy.release.wheelhouse import make_wheelhouse

if TYPE_CHECKING:
    from cluster.inventory import Inventory

_ASK = """\
import os, platform, sys
print(platform.python_version(), platform.machine(), os.path.basename(os.path.realpath(sys.prefix)))
"""
_PRUNE_SECONDS = 120.0


@dataclass(frozen=True)
class NodeExtras:
    """Environments over the common one, on the coordinator's node of a cluster of machines."""

    inventory: "Inventory"

    def bring(self, fleet: Fleet, requirements: Path) -> str:
        """Install what the requirements file needs besides, if it is missing; the key of the environment.

        The key is empty where the common environment has all of it. Raises UsageError for packages that the node cannot
        have, and ClusterError, before any job begins.
        """
        (coordinator,) = self.inventory.of_role("coordinator")
        node = fleet.nodes[coordinator.node]
        with waiting_for(f"locking {requirements.name} for {node.name}"):
            lock = locked(requirements, self._base(node))
        if lock.key and not node.run(["test", "-e", f"{EXTRAS}/environments/{lock.key}/{COMPLETE}"], root=True).ok:
            self._install(fleet, node, lock)
        if lock.key:
            _prune(node, lock.key)
        return lock.key

    def _base(self, node: Connector) -> Base:
        asked = node.run([f"{CURRENT}/environment/bin/python", "-I", "-c", _ASK])
        words = asked.text.split()
        again = f"`{command('deploy start --no-jobs', self.inventory.path)}` installs that of this checkout"
        if not asked.ok or len(words) != 3 or not KEY.fullmatch(words[2]):
            said = " ".join(asked.last_lines)
            raise ClusterError(f"{node.name}: expected the environment of its release, got {said!r:.200}; {again}")
        target = Target(words[0], words[1])
        if target.short_python not in PYTHONS or target.machine not in MACHINES:
            raise ClusterError(f"{node.name}: there are no wheels for Python {words[0]} on {words[1]!r:.40}; {again}")
        base = Base.of_nodes(target)
        if base.key != words[2]:
            raise ClusterError(f"{node.name}: runs the environment {words[2]}, not {base.key}; {again}")
        return base

    def _install(self, fleet: Fleet, node: Connector, lock: Lock) -> None:
        target, folders = lock.base.target, shared_folders(self.inventory)
        with waiting_for(f"fetching {len(lock.pins)} packages for {node.name}") as update:
            wheelhouse = make_wheelhouse(
                lock.wheelhouse_list(), target.short_python, target.machine, say=lambda line: say(line, error=True)
            )
            publication = of_wheelhouse(wheelhouse)
            update("publishing them")
            apply(
                fleet.nodes[publisher(self.inventory)],
                "publish",
                [Published(publication, folders).change()],
                lambda change, seconds: None,
            )
            update(f"installing them on {node.name}")
            script = install_environment(wheelhouse, folders.seen("wheels", wheelhouse.key), root=EXTRAS, lock=lock)
            done = node.run(shell(script), root=True, deadline_seconds=INSTALL_SECONDS)
        try:
            outcome(done.return_code, done.text, done.stderr)
        except RefusedError as refused:
            raise ClusterError(f"{node.name}: the packages cannot be installed: {refused}") from refused


def _prune(node: Connector, key: str) -> None:
    """Old ones go only while no job runs or waits: one that waits does not hold its environment yet."""
    if "pscluster-job@" in node.run(JOB_RUNS).text:
        return
    done = node.run(shell(prune_extras(key, KEPT)), root=True, deadline_seconds=_PRUNE_SECONDS)
    try:
        outcome(done.return_code, done.text, done.stderr)
    except RefusedError as refused:
        say(f"{node.name}: old environments stay: {refused}", error=True)
