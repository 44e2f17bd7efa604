"""The environments of a `requirements.txt` on nodes: locked here, published, installed, kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from cluster.apps.environments import COMPLETE, KEY
from core.ground.errors import ClusterError
from core.logs.terminal import say
from deploy.cluster.connector import Connector
from deploy.cluster.fleet import Fleet
from deploy.cluster.places import CURRENT, EXTRAS, publisher, shared_folders
from deploy.common.command_line import command
from deploy.common.interrupts import waiting_for
from deploy.converge.apply import apply
from deploy.converge.code import INSTALL_SECONDS, JOB_RUNS, run_script
from deploy.converge.publication import Published, of_wheelhouse
from deploy.release.extras import KEPT, Base, Lock, locked, wanted
from deploy.release.requirements import MACHINES, PYTHONS, Target
from deploy.release.scripts import (
    RefusedError,
    install_environment,
    prune_extras,
)
from deploy.release.wheelhouse import make_wheelhouse

if TYPE_CHECKING:
    from core.inventory import Inventory

_ASK = """\
import os, platform, sys
print(platform.python_version(), platform.machine(), os.path.basename(os.path.realpath(sys.prefix)))
"""
_PRUNE_SECONDS = 120.0

T = TypeVar("T")


@dataclass(frozen=True)
class NodeExtras:
    """Environments over the common one, on nodes of a cluster of machines."""

    inventory: "Inventory"

    def bring(self, fleet: Fleet, requirements: Path, nodes: Sequence[str]) -> Mapping[str, str]:
        """Install what these nodes lack of the requirements file, and return the key on each.

        Nodes of one kind share a lock. The key is empty where the common environment has all of it.
        Raises UsageError for packages that a node cannot have, and ClusterError, before any job
        begins; each line names its nodes.
        """
        wanted(requirements)  # what is wrong with the file itself, before any node is asked
        with waiting_for(f"locking {requirements.name} for {_named(nodes)}"):
            locks = _locks(requirements, _all(fleet.each(self._base, nodes)))
            lacking = _all(fleet.each(lambda node: _lacks(node, locks[node.name].key), nodes))
        for key in sorted({locks[name].key for name in nodes if lacking[name]}):
            self._install(
                fleet, [name for name in nodes if lacking[name] and locks[name].key == key], locks
            )
        with_one = [name for name in nodes if locks[name].key]
        _all(fleet.each(lambda node: _prune(node, locks[node.name].key), with_one))
        return {name: locks[name].key for name in nodes}

    def _base(self, node: Connector) -> Base:
        asked = node.run([f"{CURRENT}/environment/bin/python", "-I", "-c", _ASK])
        words = asked.text.split()
        again = (
            f"`{command('deploy start --no-jobs', self.inventory.path)}` installs that of this"
            " checkout"
        )
        if not asked.ok or len(words) != 3 or not KEY.fullmatch(words[2]):
            said = " ".join(asked.last_lines)
            raise ClusterError(
                f"{node.name}: expected the environment of its release, got {said!r:.200}; {again}"
            )
        target = Target(words[0], words[1])
        if target.short_python not in PYTHONS or target.machine not in MACHINES:
            raise ClusterError(
                f"{node.name}: there are no wheels for Python {words[0]} on {words[1]!r:.40};"
                f" {again}"
            )
        serves = node.name in self.inventory.service_nodes
        base = Base.of_nodes(target, service=serves)
        if (
            base.key != words[2]
            and (with_gpu := Base.of_nodes(target, cuda=True, service=serves)).key == words[2]
        ):
            return with_gpu
        if base.key != words[2]:
            raise ClusterError(
                f"{node.name}: runs the environment {words[2]}, not {base.key}; {again}"
            )
        return base

    def _install(self, fleet: Fleet, nodes: Sequence[str], locks: Mapping[str, Lock]) -> None:
        """Install one environment on the nodes that share it."""
        lock = locks[nodes[0]]
        folders = shared_folders(self.inventory)
        target = lock.base.target
        with waiting_for(f"fetching {len(lock.pins)} packages for {_named(nodes)}") as update:
            wheelhouse = make_wheelhouse(
                lock.wheelhouse_list(),
                target.short_python,
                target.machine,
                say=lambda line: say(line, error=True),
            )
            publication = of_wheelhouse(wheelhouse)
            update("publishing them")
            apply(
                fleet.nodes[publisher(self.inventory)],
                "publish",
                [Published(publication, folders).change()],
                lambda change, seconds: None,
            )
            update(f"installing them on {_named(nodes)}")
            script = install_environment(
                wheelhouse,
                folders.seen("wheels", wheelhouse.key),
                root=EXTRAS,
                lock=lock,
            )
            failed = "the packages cannot be installed: "
            _all(fleet.each(lambda node: run_script(node, script, INSTALL_SECONDS, failed), nodes))


def _locks(requirements: Path, bases: Mapping[str, Base]) -> Mapping[str, Lock]:
    """The lock of each node, one for each kind of them. Raises as `bring`."""
    kinds: dict[tuple[str, Target], list[str]] = {}
    for name, base in bases.items():
        kinds.setdefault((base.key, base.target), []).append(name)
    found: dict[str, Lock] = {}
    refused: dict[tuple[type[ClusterError], str], list[str]] = {}
    for names in kinds.values():
        try:
            lock = locked(requirements, bases[names[0]])
        except ClusterError as problem:
            # A node with a service is a kind of its own, and most often fails for the same reason.
            refused.setdefault((type(problem), str(problem)), []).extend(names)
        else:
            found |= dict.fromkeys(names, lock)
    _all({names[0]: kind(f"{', '.join(names)}: {why}") for (kind, why), names in refused.items()})
    return found


def _all(found: Mapping[str, T | ClusterError]) -> Mapping[str, T]:
    """What each node gave, if none failed. Raises the failures as one error, a line each."""
    failed = [one for one in found.values() if isinstance(one, ClusterError)]
    if failed:
        kinds = {type(one) for one in failed}
        raise (kinds.pop() if len(kinds) == 1 else ClusterError)(
            "\n".join(map(str, failed))
        ) from failed[0]
    return {name: one for name, one in found.items() if not isinstance(one, ClusterError)}


def _named(nodes: Sequence[str]) -> str:
    if len(nodes) < 4:
        return ", ".join(nodes)
    return f"{len(nodes)} nodes"


def _lacks(node: Connector, key: str) -> bool:
    return (
        bool(key)
        and not node.run(["test", "-e", f"{EXTRAS}/environments/{key}/{COMPLETE}"], root=True).ok
    )


def _prune(node: Connector, key: str) -> None:
    """Remove old environments, unless a job runs or waits: one that waits holds none yet."""
    if "pscluster-job@" in node.run(JOB_RUNS).text:
        return
    try:
        run_script(node, prune_extras(key, KEPT), _PRUNE_SECONDS, "old environments stay: ")
    except RefusedError as refused:
        say(refused, error=True)
