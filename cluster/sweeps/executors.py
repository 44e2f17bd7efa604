"""Where runs of a sweep are trained: each executor takes one at a time, here or on another node.

A node sends the files of its run back, and another node may resume it. Code does not travel back:
each run brings the sweep's own copy of the app along, which the driver puts into the run itself.
"""

import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cluster.apps.copy import FOLDER, RECORD, KeptApp, keep
from cluster.apps.files import files_of_app
from cluster.pages.files import Placement
from cluster.programs.frames import bytes_back
from cluster.programs.lead import Lead, RemoteProcess
from cluster.programs.process import ProgramProcess
from cluster.programs.program import MARK_VARIABLE, TOKEN_VARIABLE
from core.control.own_state import token_variables
from core.ground.errors import ClusterError
from core.inventory import Inventory
from core.inventory.nodes import CoordinatorPorts, Node, RoleEntry
from core.inventory.templates import free_ports

MEMBER = "cluster.sweeps.member"
RUN_FILE = "PSCLUSTER_RUN_FILE"
KEPT_CHECKPOINTS = 3
JOIN_SECONDS = 60.0
"""Time for the runners of all nodes; the sweep begins then with those that are there."""
JOIN_AGAIN_SECONDS = 0.8
"""Time for a connected runner to say which one it is; no output of runs is read meanwhile."""


@dataclass(frozen=True)
class RunAssignment:
    """One run for an executor: its id, the arguments of its training, and its folder here."""

    run: str
    arguments: Sequence[str]
    folder: Path


def environment_of_member(base: Mapping[str, str], mark: str) -> dict[str, str]:
    """Return the driver's environment for a run's process, without what is the driver's alone."""
    inherited = {
        name: value
        for name, value in base.items()
        if name not in (RUN_FILE, TOKEN_VARIABLE, "NOTIFY_SOCKET")
    }
    return {**inherited, MARK_VARIABLE: mark}


class LocalExecutor:
    """Runs as processes of this machine, which die with this one."""

    available = True
    """Whether it can take a run, once it is free."""

    def __init__(self, name: str, mark: str, placement: str = "node") -> None:
        """The `mark` is in the environment of each process.

        By it they are found when this one was killed.
        """
        self.name = name
        """`worker:0`: the node of a run in `sweep.json`."""
        self._mark = mark
        self._placement = placement
        self._process: ProgramProcess | None = None

    def begin(self, work: RunAssignment) -> None:
        """Start the run's process."""
        member_arguments = ["--folder", str(work.folder), "--placement", self._placement]
        command = [sys.executable, "-m", MEMBER, *member_arguments, "--", *work.arguments]
        environment = environment_of_member({**os.environ, **token_variables()}, self._mark)
        self._process = ProgramProcess(command, environment, Path.cwd())

    @property
    def running(self) -> ProgramProcess:
        """The process of its run. Raises ClusterError where there is none."""
        if self._process is None:
            raise ClusterError(f"{self.name}: no run is on")
        return self._process

    def close(self) -> None:
        """End it, and be free."""
        if self._process is not None:
            self._process.close()
            self._process = None


class RemoteExecutor:
    """Runs on another node, one after the other, through the runner that `fab sweep` started."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.process: RemoteProcess | None = None
        self.folder: Path | None = None
        """The folder of its present run here."""

    @property
    def available(self) -> bool:
        """Whether it can take a run, once it is free."""
        return self.process is not None and not self.process.is_lost

    @property
    def running(self) -> RemoteProcess:
        """The process of its run. Raises ClusterError where its node is not there."""
        if self.process is None:
            raise ClusterError(f"{self.name}: its node is not there")
        return self.process

    def begin(self, work: RunAssignment) -> None:
        """Start the run's process; the node gets what is here of the run, if it lacks that."""
        self.folder = work.folder
        try:
            self.running.bring(work.run, work.folder)
            self.running.begin(
                {}, ["--folder", ".", "--", *work.arguments], work.folder, bytes_back
            )
        except OSError as problem:
            self.running.hang_up()
            raise ClusterError(f"{self.name}: its node is lost: {problem}") from None

    def close(self) -> None:
        """End it, and be free."""
        if self.process is not None:
            self.process.close()


Executor = LocalExecutor | RemoteExecutor
"""A place that trains a run at a time."""


class RemoteExecutors:
    """Executors on all workers' nodes. Their runners connect when they can, and after a break."""

    def __init__(self, lead: Lead, names: Sequence[str]) -> None:
        self._lead = lead
        self.executors = [RemoteExecutor(name) for name in names]

    def gather(self, give_up: Callable[[], bool], seconds: float = JOIN_SECONDS) -> None:
        """Wait for the runners, at most that long; the others join later."""
        end = time.monotonic() + seconds
        names = [executor.name for executor in self.executors]
        self._lead.gather(names, lambda: give_up() or time.monotonic() > end, seconds=2 * seconds)
        self._add_processes()

    def join(self) -> None:
        """Take the runners that have connected meanwhile, without waiting long.

        Old checkpoints go.
        """
        for executor in self.executors:
            if executor.folder is not None:
                keep_latest_checkpoints(executor.folder)
            if executor.process is not None and executor.process.is_lost:
                executor.process.leave(last=False)
                executor.process = None
                self._lead.processes.pop(executor.name, None)
        missing = [executor.name for executor in self.executors if executor.process is None]
        if missing:
            end = time.monotonic() + JOIN_AGAIN_SECONDS
            self._lead.gather(
                [executor.name for executor in self.executors], lambda: time.monotonic() > end
            )
            self._add_processes()

    def _add_processes(self) -> None:
        for executor in self.executors:
            if executor.process is None:
                executor.process = self._lead.processes.get(executor.name)

    def close(self, last: bool) -> None:
        """Hang up; with `last` the runners end too."""
        self._lead.close(last)


def keep_latest_checkpoints(folder: Path) -> None:
    """Keep the latest checkpoints of a run from another node.

    The one before the last may be the only whole one.
    """
    manifests = sorted(folder.glob("*-train*/checkpoints/update-*.json"))
    for manifest in manifests[:-KEPT_CHECKPOINTS]:
        for path in manifest.parent.glob(f"{manifest.stem}*"):
            with suppress(OSError):
                path.unlink()


JOIN_EVERY_SECONDS = 15.0
WHOLE_CLUSTER = "cluster"
"""The node of a run over all nodes."""


class Places:
    """The executors of a sweep: here, or on the workers' nodes, whose runners come and go."""

    def __init__(self, inventory: Inventory, placement: Placement, mark: str) -> None:
        """Raises ClusterError where the port of the lead is taken."""
        self.elsewhere = placement == "node" and not inventory.one_host
        self._remote: RemoteExecutors | None = None
        workers = {task.name: task.host for task in inventory.of_role("worker")}
        self.executors: Sequence[Executor]
        if placement == "cluster":
            self.executors = [LocalExecutor(WHOLE_CLUSTER, mark, placement)]
            return
        if not self.elsewhere:
            self.executors = [LocalExecutor(name, mark) for name in workers]
            return
        host = inventory.task("coordinator", 0).host
        lead = Lead(host, inventory.ports.programs, os.environ.get(TOKEN_VARIABLE, ""), workers)
        self._remote = RemoteExecutors(lead, list(workers))
        self.executors = self._remote.executors
        self._joined_at = 0.0

    def gather(self, give_up: Callable[[], bool]) -> None:
        """Wait for the nodes."""
        if self._remote is not None:
            self._remote.gather(give_up)
            self._joined_at = time.monotonic()

    def rejoin(self) -> None:
        """Take nodes that came back, now and then."""
        if self._remote is not None and time.monotonic() - self._joined_at >= JOIN_EVERY_SECONDS:
            self._remote.join()
            self._joined_at = time.monotonic()

    def close(self, *, last: bool) -> None:
        """Let go of the nodes; with `last` for good."""
        if self._remote is not None:
            self._remote.close(last)


def beside_the_training(inventory: Inventory) -> Inventory:
    """Return the inventory with other ports for metrics and page, which a training has meanwhile.

    They are the first ports for programs of the coordinator's node; on one host, where clusters
    share them, free ones.
    """
    if inventory.one_host:
        metrics, page = free_ports(2)
    else:
        metrics, page = inventory.ports.of_programs[:2]

    def changed(node: Node) -> Node:
        roles = tuple(
            (
                RoleEntry(
                    coordinator=CoordinatorPorts(
                        port=entry.ports.port, metrics_port=metrics, page_port=page
                    )
                )
                if entry.role == "coordinator"
                else entry
            )
            for entry in node.roles
        )
        return node.model_copy(update={"roles": roles})

    with_other_ports = inventory.model_copy(
        update={"nodes": tuple(changed(node) for node in inventory.nodes)}
    )
    with_other_ports.__dict__.pop("_tasks", None)  # they follow from the nodes
    return with_other_ports


APP = "jobs.train.app"


def app_there(files: str) -> str:
    """Return the app of a run on a node, relative to its inventory.

    Beside the inventory the run's files lie in the folder `files`.
    """
    return f"{files}/{FOLDER}"


def bring_app(copy: KeptApp | None, folder: Path) -> None:
    """Put the sweep's app into the folder of a run that goes to a node, and into its trainings.

    Without an app there is none there afterwards. Raises ClusterError, OSError.
    """
    settle_app(copy, folder)
    if copy is not None:
        shutil.copytree(copy.path, folder / FOLDER)


def settle_app(copy: KeptApp | None, folder: Path) -> None:
    """Leave each training in the folder with the sweep's app, or none, whatever a node made of it.

    The folder's own, for the way to a node, goes. Raises ClusterError, OSError.
    """
    for run in (folder, *folder.glob("*/")):
        if not run.is_symlink():
            _remove(run / FOLDER)
            _remove(run / RECORD)
    if copy is not None:
        files = files_of_app(copy.path)
        for run in folder.glob("*-train*/"):
            keep(files, run, copy.environment, copy.data)


def _remove(path: Path) -> None:
    with suppress(FileNotFoundError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
