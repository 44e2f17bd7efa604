"""A node's environment, its releases and the current one, and the pruning of old ones."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from core.ground.errors import ClusterError
from deploy.cluster.connector import Connector
from deploy.cluster.fleet import Fleet
from deploy.cluster.places import CURRENT, SharedFolders
from deploy.common.command_line import quoted, shell
from deploy.converge.change import Change, Resource, Shell
from deploy.converge.devices import has_gpu
from deploy.converge.machine_facts import MachineFacts
from deploy.converge.memory_estimate import MEGABYTE
from deploy.converge.subject import DeploymentSpec, Subject
from deploy.release.code_wheel import CodeWheel, build_code_wheel
from deploy.release.history import ListingError, read, unneeded
from deploy.release.requirements import committed, environment_key
from deploy.release.scripts import (
    RefusedError,
    install_environment,
    list_releases,
    make_current,
    outcome,
    prune_folders,
    remove,
    unpack_release,
)
from deploy.release.wheelhouse import Wheelhouse

INSTALL_SECONDS = 3600.0
"""The time for 22,000 files on a slow SD card."""

IMPORTED = (
    "anyio click google grpc h11 jinja2 keras numpy prometheus_client psutil pydantic"
    " pydantic_core rich safetensors scipy starlette tensorflow typing_extensions uvicorn yaml"
)
"""The modules that roles and jobs import, also through a package; without them a job would end."""


@dataclass(frozen=True)
class Environment:
    """An environment on the node's own disk. `wheelhouse` may be None where every node has it."""

    key: str
    wheelhouse: Wheelhouse | None
    wheels: str
    """The published wheelhouse as the node sees it."""

    def changes(self, facts: MachineFacts) -> tuple[Change, ...]:
        """Install it."""
        if self.key in facts.environments or self.wheelhouse is None:
            return ()
        # The automount is there, the mount may not be: looking mounts it, and says why it cannot
        # be.
        see = Shell(
            "look into the shared folder",
            f"ls {quoted(f'{self.wheels}/SHA256SUMS')} >/dev/null",
            60.0,
            "is the storage server up, and does it export to this node's address?",
        )
        install = Shell(
            "install the environment",
            install_environment(self.wheelhouse, self.wheels, imports=IMPORTED),
            INSTALL_SECONDS,
        )
        detail = f"{self.wheelhouse.installed_bytes / MEGABYTE:,.0f} MB from {self.wheels}"
        return (Change("environment", self.key, "install", detail, (see, install)),)


@dataclass(frozen=True)
class UnpackedRelease:
    """The code, unpacked beside other releases."""

    wheel: CodeWheel
    environment: str

    def changes(self, facts: MachineFacts) -> tuple[Change, ...]:
        """Send and unpack it, or give it another environment."""
        if facts.release_environments.get(self.wheel.key) == self.environment:
            return ()
        script = unpack_release(self.wheel, self.environment)
        steps = (Shell("send and unpack the code", script, 120.0, stdin=self.wheel.path),)
        detail = f"version {self.wheel.version}, environment {self.environment}"
        return (Change("release", self.wheel.key, "create", detail, steps),)


@dataclass(frozen=True)
class Current:
    """The release that processes are started from."""

    wheel: CodeWheel

    def changes(self, facts: MachineFacts) -> tuple[Change, ...]:
        """Flip the link, in one step."""
        key = self.wheel.key
        if facts.current == key:
            return ()
        detail = f"release {key}" + (f", was {facts.current}" if facts.current else "")
        if facts.current is None:
            action = "create"
        else:
            action = "change"
        steps = (Shell("make the release current", make_current(key)),)
        return (Change("link", CURRENT, action, detail, steps, runs_jobs=True),)


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


def _resources(spec: DeploymentSpec, node: str, facts: MachineFacts) -> Sequence[Resource]:
    environment = spec.environment(node, facts)
    if environment is None:
        return ()
    wheels = spec.folders.seen("wheels", environment)
    return (
        Environment(environment, spec.wheelhouses.get(environment), wheels),
        UnpackedRelease(spec.release.code, environment),
        Current(spec.release.code),
    )


CODE = Subject("code", "code", resources=_resources)

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
        if "pscluster-job@" in node.run(JOB_RUNS).text:
            return ""
        listing = run_script(node, list_releases(), _LIST_SECONDS)
        try:
            gone = unneeded(read(listing), retained_releases=retained_releases)
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
            f"{node.name}: of the environments that nodes named one is none: {error}"
        ) from error
    done = node.run(shell(script), root=user is None, user=user, deadline_seconds=_REMOVE_SECONDS)
    outcome(done.return_code, done.text, done.stderr)
