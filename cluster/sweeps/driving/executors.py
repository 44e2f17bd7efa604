"""Where runs of a sweep are trained: each executor takes one at a time, here or on another node."""

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cluster.apps.returned import bytes_back
from cluster.programs.lead import Lead, RemoteProcess
from cluster.programs.process import ProgramProcess
from cluster.programs.roster import MARK_VARIABLE, TOKEN_VARIABLE
from core.control.own_state import token_variables
from core.ground.errors import ClusterError

MEMBER = "cluster.sweeps.driving.member"
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
        self._take()

    def join(self) -> None:
        """Take the runners that have connected meanwhile, without waiting long.

        Old checkpoints go.
        """
        for executor in self.executors:
            if executor.folder is not None:
                tidy(executor.folder)
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
            self._take()

    def _take(self) -> None:
        for executor in self.executors:
            if executor.process is None:
                executor.process = self._lead.processes.get(executor.name)

    def close(self, last: bool) -> None:
        """Hang up; with `last` the runners end too."""
        self._lead.close(last)


def tidy(folder: Path) -> None:
    """Keep the latest checkpoints of a run from another node.

    The one before the last may be the only whole one.
    """
    manifests = sorted(folder.glob("*-train*/checkpoints/update-*.json"))
    for manifest in manifests[:-KEPT_CHECKPOINTS]:
        for path in manifest.parent.glob(f"{manifest.stem}*"):
            with suppress(OSError):
                path.unlink()
