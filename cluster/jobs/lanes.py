"""Where the runs of a sweep are trained: each lane takes one at a time, as a process here or on another node."""

import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from signal import Signals
from typing import Protocol

from cluster.errors import ClusterError
from cluster.programs.lead import Lead, RemoteProcess
from cluster.programs.process import ProgramProcess
from cluster.programs.roster import MARK_VARIABLE, TOKEN_VARIABLE

MEMBER = "cluster.jobs.member"
RUN_FILE = "PSCLUSTER_RUN_FILE"
KEPT_CHECKPOINTS = 3
JOIN_SECONDS = 60.0
"""For the runners of all nodes; the sweep begins then with those that are there."""
JOIN_AGAIN_SECONDS = 0.8
"""For a runner that has connected to say which one it is; the runs are not heard meanwhile."""


@dataclass(frozen=True)
class Work:
    """One run for a lane: its id, the arguments of its training, and its folder here."""

    run: str
    words: Sequence[str]
    folder: Path


class Lane(Protocol):
    """One place that trains a run at a time."""

    name: str
    """`worker:0`: the node of a run in `sweep.json`."""

    @property
    def there(self) -> bool:
        """Whether it can take a run, once it is free."""

    def begin(self, work: Work) -> None:
        """Start the run's process. Raises ClusterError, OSError."""

    def fileno(self) -> int:
        """What a selector waits for while a run is on."""

    def read(self) -> bytes | None:
        """What the process printed since; None where nothing waits, no bytes at the end."""

    def poll(self) -> int | None:
        """Its return code, negative for a signal; None while it runs."""

    def ask(self, number: Signals) -> None:
        """Send it a signal."""

    def close(self) -> None:
        """End it, and be free."""


def environment_of_member(base: Mapping[str, str], mark: str) -> dict[str, str]:
    """Of a run's process: that of the driver without what belongs to the driver alone."""
    kept = {name: value for name, value in base.items() if name not in (RUN_FILE, TOKEN_VARIABLE, "NOTIFY_SOCKET")}
    return {**kept, MARK_VARIABLE: mark}


class _Running(ABC):
    """What a lane does with the process of its run, wherever that is."""

    @property
    @abstractmethod
    def _running(self) -> ProgramProcess | RemoteProcess:
        """The process. Raises ClusterError where there is none."""

    def fileno(self) -> int:
        """See `Lane`."""
        return self._running.fileno()

    def read(self) -> bytes | None:
        """See `Lane`."""
        return self._running.read()

    def poll(self) -> int | None:
        """See `Lane`."""
        return self._running.poll()

    def ask(self, number: Signals) -> None:
        """See `Lane`."""
        self._running.ask(number)


class LaneHere(_Running):
    """Runs as processes of this machine, which die with this one."""

    there = True

    def __init__(self, name: str, mark: str, placement: str = "node") -> None:
        """The `mark` is in the environment of each process, by which it is found when this one was killed."""
        self.name, self._mark, self._placement = name, mark, placement
        self._process: ProgramProcess | None = None

    def begin(self, work: Work) -> None:
        """See `Lane`."""
        own = ["--folder", str(work.folder), "--placement", self._placement]
        words = [sys.executable, "-m", MEMBER, *own, "--", *work.words]
        self._process = ProgramProcess(words, environment_of_member(os.environ, self._mark), Path.cwd())

    @property
    def _running(self) -> ProgramProcess:
        if self._process is None:
            raise ClusterError(f"{self.name}: no run is on")
        return self._process

    def close(self) -> None:
        """See `Lane`."""
        if self._process is not None:
            self._process.close()
            self._process = None


class LaneThere(_Running):
    """Runs on another node, one after the other, through the runner that `fab sweep` has started there."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.process: RemoteProcess | None = None
        self.folder: Path | None = None
        """Of its present run here."""

    @property
    def there(self) -> bool:
        """See `Lane`."""
        return self.process is not None and not self.process.is_lost

    @property
    def _running(self) -> RemoteProcess:
        if self.process is None:
            raise ClusterError(f"{self.name}: its node is not there")
        return self.process

    def begin(self, work: Work) -> None:
        """See `Lane`. The node gets what is here of the run, unless it has that itself."""
        self.folder = work.folder
        try:
            self._running.bring(work.run, work.folder)
            self._running.begin({}, ["--folder", ".", "--", *work.words], work.folder)
        except OSError as problem:
            self._running.hang_up()
            raise ClusterError(f"{self.name}: its node is lost: {problem}") from None

    def close(self) -> None:
        """See `Lane`."""
        if self.process is not None:
            self.process.close()


class LanesThere:
    """The lanes of all workers' nodes: their runners connect when they can, and again after a break."""

    def __init__(self, lead: Lead, names: Sequence[str]) -> None:
        self._lead = lead
        self.lanes = [LaneThere(name) for name in names]

    def gather(self, give_up: Callable[[], bool], seconds: float = JOIN_SECONDS) -> None:
        """Wait for the runners, at most that long; the lanes of others join later."""
        end = time.monotonic() + seconds
        names = [lane.name for lane in self.lanes]
        self._lead.gather(names, lambda: give_up() or time.monotonic() > end, seconds=2 * seconds)
        self._take()

    def join(self) -> None:
        """Take the runners that have connected meanwhile, without waiting long. Old checkpoints go."""
        for lane in self.lanes:
            if lane.folder is not None:
                tidy(lane.folder)
            if lane.process is not None and lane.process.is_lost:
                lane.process.leave(last=False)
                lane.process = None
                self._lead.processes.pop(lane.name, None)
        missing = [lane.name for lane in self.lanes if lane.process is None]
        if missing:
            end = time.monotonic() + JOIN_AGAIN_SECONDS
            self._lead.gather([lane.name for lane in self.lanes], lambda: time.monotonic() > end)
            self._take()

    def _take(self) -> None:
        for lane in self.lanes:
            if lane.process is None:
                lane.process = self._lead.processes.get(lane.name)

    def close(self, last: bool) -> None:
        """Hang up; with `last` the runners end too."""
        self._lead.close(last)


def tidy(folder: Path) -> None:
    """Keep the latest checkpoints of a run that came from another node; the one before may be the only whole one."""
    manifests = sorted(folder.glob("*-train*/checkpoints/update-*.json"))
    for manifest in manifests[:-KEPT_CHECKPOINTS]:
        for path in manifest.parent.glob(f"{manifest.stem}*"):
            with suppress(OSError):
                path.unlink()
