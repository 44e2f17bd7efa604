"""A node's environment, its releases and the current one, and the pruning of old ones.

Environments of a `requirements.txt` are locked here, then published, installed and pruned too.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

from cluster.apps.environments import COMPLETE, KEY
from core.ground.errors import ClusterError
from core.logs import say
from deploy.cluster.connector import Connector
from deploy.cluster.fleet import Fleet, split_errors
from deploy.cluster.places import CURRENT, EXTRAS, SharedFolders, publisher, shared_folders
from deploy.common.command_line import command, quoted, shell
from deploy.common.interrupts import waiting_for
from deploy.converge.apply import apply
from deploy.converge.hardware import has_gpu
from deploy.converge.machine_facts import MEGABYTE, MachineFacts
from deploy.converge.publication import of_wheelhouse, publish
from deploy.converge.subject import Change, Changes, DeploymentSpec, Shell, Subject
from deploy.release.code_wheel import CodeWheel, build_code_wheel
from deploy.release.extras import KEPT, Base, Lock, lock_packages, package_lines
from deploy.release.requirements import MACHINES, PYTHONS, Target, committed, environment_key
from deploy.release.scripts import (
    ListingError,
    RefusedError,
    install_environment,
    installed_releases,
    list_releases,
    make_current,
    outcome,
    prune_extras,
    prune_folders,
    remove,
    unneeded,
    unpack_release,
)
from deploy.release.wheelhouse import Wheelhouse, make_wheelhouse

if TYPE_CHECKING:
    from core.inventory import Inventory


INSTALL_SECONDS = 3600.0
"""The time for 22,000 files on a slow SD card."""

IMPORTED = (
    "anyio click google grpc h11 jinja2 keras numpy prometheus_client psutil pydantic"
    " pydantic_core rich safetensors scipy starlette tensorflow typing_extensions uvicorn yaml"
)
"""The modules that roles and jobs import, also through a package; without them a job would end."""


def _keep_environment(
    facts: MachineFacts, key: str, wheelhouse: Wheelhouse | None, wheels: str
) -> Changes:
    """Install an environment on the node's own disk.

    `wheelhouse` may be None where every node has it; `wheels` is the published one as the node sees
    it.
    """
    if key in facts.environments or wheelhouse is None:
        return
    # The automount is there, the mount may not be: looking mounts it, and says why it cannot be.
    see = Shell(
        "look into the shared folder",
        f"ls {quoted(f'{wheels}/SHA256SUMS')} >/dev/null",
        60.0,
        "is the storage server up, and does it export to this node's address?",
    )
    script = install_environment(wheelhouse, wheels, imports=IMPORTED)
    install = Shell("install the environment", script, INSTALL_SECONDS)
    yield Change(
        "environment",
        key,
        "install",
        f"{wheelhouse.installed_bytes / MEGABYTE:,.0f} MB from {wheels}",
        (see, install),
    )


def keep_release(facts: MachineFacts, wheel: CodeWheel, environment: str) -> Changes:
    """Send the code and unpack it beside other releases, or give it another environment."""
    if facts.release_environments.get(wheel.key) != environment:
        script = unpack_release(wheel, environment)
        yield Change(
            "release",
            wheel.key,
            "create",
            f"version {wheel.version}, environment {environment}",
            (Shell("send and unpack the code", script, 120.0, stdin=wheel.path),),
        )


def _plan(spec: DeploymentSpec, facts: MachineFacts) -> Changes:
    environment = spec.environment(facts)
    if environment is None:
        return
    wheels = spec.folders.seen("wheels", environment)
    yield from _keep_environment(facts, environment, spec.wheelhouses.get(environment), wheels)
    yield from keep_release(facts, spec.release.code, environment)
    key = spec.release.code.key
    if facts.current != key:  # flip the link, in one step
        detail = f"release {key}" + (f", was {facts.current}" if facts.current else "")
        if facts.current is None:
            action = "create"
        else:
            action = "change"
        yield Change(
            "link",
            CURRENT,
            action,
            detail,
            (Shell("make the release current", make_current(key)),),
            runs_jobs=True,
        )


@dataclass(frozen=True)
class ReleaseChoice:
    """The code, by the hash of its wheel, and each kind of node's environment, by its lock's."""

    code: CodeWheel
    requirements: str
    cuda_requirements: str | None = None
    """The list for nodes with a GPU; None where no training uses them."""

    serving: Mapping[bool, str] = field(default_factory=dict)
    """The lists for nodes with the service, by whether they get TensorFlow for a GPU."""

    @classmethod
    def of_this_checkout(cls, *, cuda: bool = False) -> Self:
        """Return the release that the files here make.

        With `cuda` nodes with a GPU get TensorFlow for it.
        """
        serving = {for_gpu: committed(cuda=for_gpu, service=True) for for_gpu in (False, True)}
        return cls(build_code_wheel(), committed(), committed(cuda=True) if cuda else None, serving)

    def packages_for(self, facts: MachineFacts, *, serves: bool = False) -> str:
        """The list of packages of a node; `serves` says whether it has the role `service`."""
        if self.cuda_requirements and has_gpu(facts):
            cuda = self.cuda_requirements
        else:
            cuda = None
        if serves:
            return self.serving[cuda is not None]
        return cuda or self.requirements

    def environment_for(self, facts: MachineFacts, *, serves: bool = False) -> str | None:
        """The environment of a node; None for one that has no Python we have wheels for."""
        if facts.python_version is None:
            return None
        return environment_key(
            self.packages_for(facts, serves=serves), facts.python_version, facts.machine
        )


CODE = Subject("code", "code", plan=_plan)

_LIST_SECONDS = 60.0
_REMOVE_SECONDS = 600.0
JOB_RUNS = (
    "systemctl",
    "list-units",
    "--plain",
    "--no-legend",
    "--state=active,activating",
    "pscluster-job@*",
)


def run_script(node: Connector, script: str, deadline_seconds: float, failed: str = "") -> str:
    """Run a script of releases there as root, and return what it printed.

    Raises RefusedError, which names the node and what has `failed`.
    """
    done = node.run(shell(script), root=True, deadline_seconds=deadline_seconds)
    try:
        outcome(done.return_code, done.text, done.stderr)
    except RefusedError as refused:
        raise RefusedError(f"{node.name}: {failed}{refused}", refused.return_code) from refused
    return done.text


def prune(
    fleet: Fleet, names: Sequence[str], retained_releases: int
) -> dict[str, str | ClusterError]:
    """Keep the last `retained_releases` on each node, and their environments.

    Return what was removed as a text by node, empty where nothing was, or the error. A node where a
    job runs is left alone: the job's process may be of an old release.
    """

    def one(node: Connector) -> str:
        if _has_job(node):
            return ""
        listing = run_script(node, list_releases(), _LIST_SECONDS)
        try:
            gone = unneeded(installed_releases(listing), retained_releases=retained_releases)
            if not gone.releases and not gone.environments:
                return ""
            script = remove(gone.releases, gone.environments)
        except (ListingError, ValueError) as error:  # a key that is none
            raise ClusterError(f"{node.name}: {error}") from error
        return run_script(node, script, _REMOVE_SECONDS)

    return fleet.each(one, names)


def prune_wheels(node: Connector, folders: SharedFolders, needed: Collection[str]) -> None:
    """Remove the published wheelhouses but those of the environments `needed`.

    These are all that some node has or is to have. Raises ClusterError.
    """
    user = folders.publishing_user
    try:
        script = prune_folders(f"{folders.publish_folder}/wheels", needed)
    except ValueError as error:
        raise ClusterError(
            f"{node.name}: a node named an environment that is none: {error}"
        ) from error
    done = node.run(shell(script), root=user is None, user=user, deadline_seconds=_REMOVE_SECONDS)
    outcome(done.return_code, done.text, done.stderr)


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
        package_lines(requirements)  # what is wrong with the file itself, before any node is asked
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
        outcome = node.run([f"{CURRENT}/environment/bin/python", "-I", "-c", _ASK])
        fields = outcome.text.split()
        again = (
            f"`{command('deploy start --no-jobs', self.inventory.path)}` installs that of this"
            " checkout"
        )
        if not outcome.ok or len(fields) != 3 or not KEY.fullmatch(fields[2]):
            output = " ".join(outcome.last_lines)
            raise ClusterError(
                f"{node.name}: expected the environment of its release, got {output!r:.200};"
                f" {again}"
            )
        target = Target(fields[0], fields[1])
        if target.short_python not in PYTHONS or target.machine not in MACHINES:
            raise ClusterError(
                f"{node.name}: there are no wheels for Python {fields[0]} on {fields[1]!r:.40};"
                f" {again}"
            )
        serves = node.name in self.inventory.service_nodes
        base = Base.of_nodes(target, service=serves)
        if (
            base.key != fields[2]
            and (with_gpu := Base.of_nodes(target, cuda=True, service=serves)).key == fields[2]
        ):
            return with_gpu
        if base.key != fields[2]:
            raise ClusterError(
                f"{node.name}: runs the environment {fields[2]}, not {base.key}; {again}"
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
                [publish(publication, folders)],
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
    locks: dict[str, Lock] = {}
    refused: dict[tuple[type[ClusterError], str], list[str]] = {}
    for names in kinds.values():
        try:
            lock = lock_packages(requirements, bases[names[0]])
        except ClusterError as problem:
            # A node with a service is a kind of its own, and most often fails for the same reason.
            refused.setdefault((type(problem), str(problem)), []).extend(names)
        else:
            locks |= dict.fromkeys(names, lock)
    _all({names[0]: kind(f"{', '.join(names)}: {why}") for (kind, why), names in refused.items()})
    return locks


def _all(results: Mapping[str, T | ClusterError]) -> Mapping[str, T]:
    """Return what each node gave. Raises the failures as one error, a line each."""
    answers, errors = split_errors(results)
    if errors:
        first, *further_errors = errors.values()
        same = all(type(error) is type(first) for error in further_errors)
        text = "\n".join(map(str, errors.values()))
        raise (type(first) if same else ClusterError)(text) from first
    return answers


def _named(nodes: Sequence[str]) -> str:
    if len(nodes) < 4:
        return ", ".join(nodes)
    return f"{len(nodes)} nodes"


def _lacks(node: Connector, key: str) -> bool:
    return (
        bool(key)
        and not node.run(["test", "-e", f"{EXTRAS}/environments/{key}/{COMPLETE}"], root=True).ok
    )


def _has_job(node: Connector) -> bool:
    return "pscluster-job@" in node.run(JOB_RUNS).text


def _prune(node: Connector, key: str) -> None:
    """Remove old environments, unless a job runs or waits: one that waits holds none yet."""
    if _has_job(node):
        return
    try:
        run_script(node, prune_extras(key, KEPT), _PRUNE_SECONDS, "old environments stay: ")
    except RefusedError as refused:
        say(refused, error=True)
