"""Drives the runs of a sweep: gives each free executor one, reads its output, records its end."""

import logging
import math
import selectors
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from signal import Signals
from typing import Any, Protocol

from cluster.pages.files import RunRecord, SweepRecord
from cluster.programs.lead import LOST, RunningProcess
from cluster.programs.output import BoundedLog
from cluster.programs.process import read_rest
from cluster.sweeps.executors import Executor, Places
from cluster.sweeps.plan import RunExit, Schedule
from cluster.sweeps.progress import Advance, Epoch, MemberOutput, seconds_left
from core.ground.errors import ClusterError, ExitCode
from core.ground.files import json_object, write_refusal

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.1
INTERRUPTED_SECONDS = 25.0
"""Time for the checkpoints of the runs after Ctrl-C; `fab` kills the driver after 60 s."""
NO_NODE_SECONDS = 15.0
"""Time without any node; then a person reads that the sweep waits."""
RUNS = "runs"


@dataclass
class Lease:
    """A run with its executor, as the driver sees it."""

    run: RunRecord
    executor: Executor
    process: RunningProcess
    log: BoundedLog
    began: float = field(default_factory=time.monotonic)
    lines: MemberOutput = field(default_factory=MemberOutput)
    progress: Advance | None = None
    ended_by_us: bool = False
    pruned: str = ""
    is_open: bool = True
    """Whether its output is read: it has not ended."""

    @property
    def seconds(self) -> float:
        """Return the seconds since it began."""
        return time.monotonic() - self.began


class DrivenSweep(Protocol):
    """What a drive needs of the sweep whose runs it drives."""

    def arguments_of(self, run: RunRecord) -> Sequence[str]:
        """The arguments of the run's training."""

    def changed(self, record: SweepRecord) -> None:
        """Take the record after a change."""

    def run_over(self, run: RunRecord) -> None:
        """Take a run that is over."""

    def loses_the_cluster(self, code: int) -> bool:
        """Whether the return code of a run means that the roles must restart."""

    def looked(self) -> None:
        """Called some times a second."""


class ClusterLost(ClusterError):
    """A run over all nodes lost a server or its coordinator: roles restart, the sweep resumes."""

    exit_code = ExitCode.SERVER_LOST


class Drive:
    """The runs of one schedule on some executors, from the first to the last."""

    def __init__(
        self, schedule: Schedule, places: Places, folder: Path, sweep: DrivenSweep
    ) -> None:
        """`folder` is the sweep's."""
        self.schedule = schedule
        self._places = places
        self._executors = places.executors
        self._folder = folder
        self._sweep = sweep
        self.leases: dict[str, Lease] = {}
        self._there_at = time.monotonic()
        """When a node was there last; infinite once a line has said that none is."""
        self._aside: set[str] = set()

    def run(self, asked_to_end: Callable[[], bool]) -> bool:
        """Whether all runs are over; False once a person asked to end.

        Raises ClusterLost, ClusterError.
        """
        self._sweep.changed(self.schedule.record)
        try:
            while True:
                if asked_to_end():
                    self._interrupt()
                    return False
                self._hand_out()
                if not self.leases and not self.schedule.open and not self.schedule.trials.to_come:
                    return True
                self._read_all()
                self._places.rejoin()
                self._sweep.looked()
        finally:
            for lease in list(self.leases.values()):
                self._forget(lease)

    def seconds_left(self) -> float | None:
        """Return the time until all runs are over; None while nothing is known."""
        elapsed = {
            lease.run.id: (lease.run.seconds + lease.seconds, lease.progress)
            for lease in self.leases.values()
        }
        available_count = sum(
            executor.available and executor.name not in self._aside for executor in self._executors
        )
        return seconds_left(
            self.schedule.record.runs, available_count, elapsed, self.schedule.trials.to_come
        )

    def _hand_out(self) -> None:
        available = [executor for executor in self._executors if executor.available]
        names = [executor.name for executor in available]
        for executor in available:
            if executor.name in self.leases or executor.name in self._aside:
                continue
            if self.schedule.is_set_aside(executor.name, len(available) - len(self._aside)):
                self._aside.add(executor.name)
                self.schedule.gone(executor.name)
                log.warning(
                    "%s: its last runs ended without a result: it gets no more", executor.name
                )
                continue
            run = self.schedule.lease_next(executor.name, names)
            if run is not None:
                self._begin(executor, run)
        self._say_when_idle(bool(available))

    def _say_when_idle(self, is_there: bool) -> None:
        now = time.monotonic()
        if is_there:
            self._there_at = now
        elif now - self._there_at > NO_NODE_SECONDS:
            self._there_at = math.inf
            log.warning(
                "no worker's node is there: the sweep waits for one; `fab deploy status` shows them"
            )

    def _begin(self, executor: Executor, run: RunRecord) -> None:
        folder = self._folder / RUNS / run.id
        try:
            folder.mkdir(parents=True, exist_ok=True)
            output = BoundedLog(folder.with_name(f"{run.id}.log"))
        except OSError as problem:
            raise write_refusal(folder, "the folder of the run cannot be made", problem) from None
        try:
            process = executor.begin(run.id, self._sweep.arguments_of(run), folder)
        except (ClusterError, OSError) as problem:
            executor.close()
            output.close()
            ending = RunExit(None, str(problem), lost=not executor.available)
            self._over(executor.name, self._ended_run(executor.name, run, ending, 0.0), ending)
            return
        self.leases[executor.name] = Lease(run, executor, process, output)
        log.info("run %s begins on %s", run.id, executor.name)
        self._sweep.changed(self.schedule.record)

    def _read_all(self) -> None:
        with selectors.DefaultSelector() as selector:
            for lease in self.leases.values():
                if lease.is_open:
                    selector.register(lease.process, selectors.EVENT_READ, lease)
            for key, _ in selector.select(LOOK_SECONDS):
                self._read(key.data)
        for lease in list(self.leases.values()):
            code = lease.process.poll()
            if code is not None:
                self._ended(lease, code)

    def _read(self, lease: Lease) -> bool:
        """Take what it printed; whether there was something."""
        piece = lease.process.read_output()
        if piece:
            lease.log.add(piece)
            for message in lease.lines.add(piece):
                self._note(lease, message)
        lease.is_open = piece != b""
        return bool(piece)

    def _note(self, lease: Lease, message: Advance | Epoch) -> None:
        if isinstance(message, Advance):
            lease.progress = message
            return
        why = self.schedule.trials.epoch_ended(lease.run, message)
        if why and not lease.pruned:
            lease.pruned = why
            lease.ended_by_us = True
            lease.process.ask(Signals.SIGKILL)

    def _ended(self, lease: Lease, code: int) -> None:
        read_rest(lambda: self._read(lease))
        lease.lines.close()
        self._close(lease, self._ending(lease, code))
        if self._sweep.loses_the_cluster(code) and not lease.ended_by_us:
            raise ClusterLost(f"run {lease.run.id}: {lease.lines.last or f'ended with {code}'}")

    def _ending(self, lease: Lease, code: int) -> RunExit:
        if code < 0:
            ended = f"signal {-code}"
        else:
            ended = f"exit code {code}"
        description = f"ended with {ended}: {lease.lines.last or 'its process said nothing'}"
        if self._sweep.loses_the_cluster(code):
            return RunExit(None, description, ended_by_us=True)
        result = None
        if not lease.pruned and code not in (ExitCode.PORT_TAKEN, ExitCode.SERVER_LOST):
            result = result_of(self._folder / RUNS / lease.run.id)[1]
        return RunExit(
            result,
            description,
            code == LOST and not lease.executor.available,
            lease.ended_by_us,
            hopeless=code == ExitCode.BAD_USAGE,
        )

    def _close(self, lease: Lease, ending: RunExit) -> None:
        name = lease.executor.name
        seconds = lease.seconds
        self._forget(lease)
        if lease.pruned:
            run = self.schedule.pruned(name, seconds, lease.pruned)
        else:
            run = self._ended_run(name, lease.run, ending, seconds)
        self._over(name, run, ending)

    def _ended_run(self, name: str, run: RunRecord, ending: RunExit, seconds: float) -> RunRecord:
        path = result_of(self._folder / RUNS / run.id)[0]
        if path is None:
            folder = None
        else:
            folder = str(path.relative_to(self._folder))
        return self.schedule.ended(name, ending, seconds, folder)

    def _over(self, name: str, run: RunRecord, ending: RunExit) -> None:
        if ending.lost and run.state == "waiting":
            log.warning(
                "%s is lost: run %s waits for another; its node gets runs again once it is back",
                name,
                run.id,
            )
        elif run.state == "waiting" and not ending.ended_by_us:
            log.warning(
                "run %s on %s %s; it waits for its next turn", run.id, name, ending.description
            )
        if run.state != "waiting":
            self.schedule.trials.over(run)
            self._sweep.run_over(run)
        self._sweep.changed(self.schedule.record)

    def _forget(self, lease: Lease) -> None:
        self.leases.pop(lease.executor.name, None)
        lease.process.close()
        lease.executor.close()
        lease.log.close()

    def _interrupt(self) -> None:
        """Ask every run to end with a checkpoint, kill those that do not."""
        for lease in self.leases.values():
            lease.ended_by_us = True
            lease.process.ask(Signals.SIGINT)
        end = time.monotonic() + INTERRUPTED_SECONDS
        while self.leases and time.monotonic() < end:
            self._read_all()
        for lease in list(self.leases.values()):
            lease.process.ask(Signals.SIGKILL)
            self._close(lease, RunExit(None, "killed", ended_by_us=True))


def result_of(folder: Path) -> tuple[Path | None, Mapping[str, Any] | None]:
    """The newest run in the folder of one id, and its result where that can be read."""
    runs = sorted(path.parent for path in folder.glob("*-train*/coordinator.log"))
    for run in reversed(runs):
        content = json_object(run / "result.json")
        if content is not None:
            return run, content
    return (runs[-1] if runs else None), None
