"""Where runs of a sweep are trained: each executor takes one at a time, here or on another node.

A node sends the files of its run back, and another node may resume it. Code does not travel back:
each run brings the sweep's own copy of the app along, which the driver puts into the run itself.
"""

import json
import logging
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from cluster.apps.copy import FOLDER, RECORD, KeptApp, keep
from cluster.apps.files import files_of_app
from cluster.pages.files import Placement
from cluster.programs.frames import bytes_back
from cluster.programs.lead import Lead, RemoteProcess
from cluster.programs.process import ProgramProcess
from cluster.programs.program import TOKEN_VARIABLE, environment_of_ours
from core.control.own_state import token_variables
from core.ground.errors import ClusterError
from core.ground.ports import free_ports
from core.inventory import Inventory
from core.inventory.nodes import CoordinatorPorts, Node, RoleEntry

log = logging.getLogger(__name__)

MEMBER = "cluster.sweeps.member"
KEPT_CHECKPOINTS = 3
JOIN_SECONDS = 60.0
"""Time for the runners of all nodes; the sweep begins then with those that are there."""
JOIN_AGAIN_SECONDS = 0.8
"""Time for a connected runner to say which one it is; no output of runs is read meanwhile."""


class LocalExecutor:
    """Runs as processes of this machine, which die with this one."""

    available = True
    """Whether it can take a run, once it is free."""

    def __init__(
        self, name: str, mark: str, placement: str = "node", further_arguments: Sequence[str] = ()
    ) -> None:
        """The `mark` is in the environment of each process.

        By it they are found when this one was killed.
        """
        self.name = name
        """`worker:0`: the node of a run in `sweep.json`."""
        self._mark = mark
        self._placement = placement
        self._further_arguments = further_arguments

    def begin(self, run: str, arguments: Sequence[str], folder: Path) -> ProgramProcess:
        """Start the process of the run of this id, whose folder here is `folder`."""
        member_arguments = ["--folder", str(folder), "--placement", self._placement, "--"]
        training = [*arguments, *self._further_arguments]
        command = [sys.executable, "-m", MEMBER, *member_arguments, *training]
        environment = environment_of_ours({**os.environ, **token_variables()}, self._mark)
        environment.pop(TOKEN_VARIABLE, None)
        return ProgramProcess(command, environment, Path.cwd())

    def close(self) -> None:
        """Be free."""


class RemoteExecutor:
    """Runs on another node, one after the other, through the runner that `fab sweep` started.

    It trains the sweep's `app`: whatever came back from the node is not used.
    """

    def __init__(
        self,
        name: str,
        lead: Lead,
        app: KeptApp | None = None,
        further_arguments: Sequence[str] = (),
    ) -> None:
        self.name = name
        self._lead = lead
        self._app = app
        self._further_arguments = further_arguments
        self._folder: Path | None = None
        """The folder of its latest run here."""

    @property
    def available(self) -> bool:
        """Whether it can take a run, once it is free."""
        process = self._lead.processes.get(self.name)
        return process is not None and not process.is_lost

    def begin(self, run: str, arguments: Sequence[str], folder: Path) -> RemoteProcess:
        """Start the run's process; the node gets what is here of the run, if it lacks that."""
        self._folder = folder
        bring_app(self._app, folder)
        training = [*arguments, *self._further_arguments]
        process = self._lead.processes[self.name]
        try:
            process.bring(run, folder)
            process.begin({}, ["--folder", ".", "--", *training], folder, bytes_back)
        except OSError as problem:
            process.hang_up()
            process.close()
            raise ClusterError(f"{self.name}: its node is lost: {problem}") from None
        return process

    def close(self) -> None:
        """Be free, with the files of the run as the sweep wants them."""
        if self._folder is not None:
            try:
                settle_app(self._app, self._folder)
            except (ClusterError, OSError) as problem:
                log.warning("%s has no copy of its app: %s", self._folder, problem)

    def rejoin(self) -> None:
        """Let go of a lost node, whose runner may connect again. Old checkpoints go."""
        if self._folder is not None:
            keep_latest_checkpoints(self._folder)
        process = self._lead.processes.get(self.name)
        if process is None:
            return
        process.notice_hang_up()
        if process.is_lost:
            process.leave(last=False)
            del self._lead.processes[self.name]


Executor = LocalExecutor | RemoteExecutor
"""A place that trains a run at a time."""


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
APP = "jobs.train.app"
FILES = "files"
"""The folder of a run's files on another node, seen from its inventory."""
THERE = "../inventory.yaml"
"""The inventory on another node, seen from the folder of its files."""


class Places:
    """The executors of a sweep: here, or on the workers' nodes, whose runners come and go."""

    def __init__(self, executors: Sequence[Executor], lead: Lead | None = None) -> None:
        """The `lead` is that of the nodes."""
        self.executors = executors
        self._lead = lead
        self._joined_at = time.monotonic()

    def gather(self, give_up: Callable[[], bool], seconds: float = JOIN_SECONDS) -> None:
        """Wait for the nodes' runners, at most that long; the others join later."""
        if self._lead is not None:
            end = time.monotonic() + seconds
            names = [executor.name for executor in self.executors]
            self._lead.gather(names, lambda: give_up() or time.monotonic() > end, 2 * JOIN_SECONDS)
            self._joined_at = time.monotonic()

    def rejoin(self) -> None:
        """Take nodes that came back, now and then, without waiting long."""
        if self._lead is None or time.monotonic() - self._joined_at < JOIN_EVERY_SECONDS:
            return
        for executor in self.executors:
            if isinstance(executor, RemoteExecutor):
                executor.rejoin()
        self.gather(lambda: False, JOIN_AGAIN_SECONDS)

    def close(self, *, last: bool) -> None:
        """Hang up; with `last` the nodes' runners end too."""
        if self._lead is not None:
            self._lead.close(last)


def places_of(inventory: Inventory, placement: Placement, mark: str, app: KeptApp | None) -> Places:
    """Where the runs of a sweep are trained: here, or on the workers' nodes.

    They train the sweep's own copy of its `app`. Raises ClusterError where the port of the lead is
    taken.
    """
    elsewhere = placement == "node" and not inventory.one_host
    if elsewhere:
        path = THERE
    else:
        path = str(inventory.path.resolve())
    arguments = ["--inventory", path]
    if app is not None:
        if elsewhere:
            place = f"{FILES}/{FOLDER}"
        else:
            place = str(app.path.resolve())
        arguments += ["--set", f"{APP}={json.dumps(place)}"]
    if placement == "cluster":
        return Places([LocalExecutor(WHOLE_CLUSTER, mark, placement, arguments)])
    workers = {task.name: task.host for task in inventory.of_role("worker")}
    if not elsewhere:
        return Places([LocalExecutor(name, mark, placement, arguments) for name in workers])
    host = inventory.task("coordinator", 0).host
    lead = Lead(host, inventory.ports.programs, os.environ.get(TOKEN_VARIABLE, ""), workers)
    return Places([RemoteExecutor(name, lead, app, arguments) for name in workers], lead)


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
