"""The faults that `--chaos` injects into a run, and their log, over all coordinators of the run."""

import json
import logging
import os
import time
from collections import Counter
from math import inf
from pathlib import Path
from typing import Any

from core.engine.chaos import DEADLY, HOLD, Chaos, ChaosPlan, Fault, Strike, deadly_faults
from core.engine.threads import Saboteur
from core.ground.errors import ClusterError
from core.ground.files import parsed_json
from core.status.events import Consumer, FaultInjected

log = logging.getLogger(__name__)


CHAOS_LOG = "chaos.jsonl"

LET_GO = "let_go-{}"
"""A file in the run's folder, for which a training that waits after so many updates waits."""


SUPERVISOR = "PSCLUSTER_SUPERVISOR"
"""Environment variable: the socket of the supervisor that keeps the roles."""


def sabotage(
    plan: ChaosPlan | None,
    folder: Path,
    servers: int,
    emit: Consumer,
    *,
    workers_hold_parameters: bool = False,
) -> tuple[Saboteur | None, "ChaosLog | None"]:
    """Return the saboteur of a plan for a run, and its log; Nones without a plan.

    Every fault is emitted. Raises ClusterError.
    """
    if plan is None:
        return None, None
    deadly = deadly_faults(workers_hold_parameters)
    record = ChaosLog(folder, emit, deadly)
    supervisor = os.environ.get(SUPERVISOR)
    chaos = Chaos(plan, record.attempt, servers, deadly)
    return Saboteur(chaos, record, Path(supervisor) if supervisor else None), record


class ChaosLog:
    """`chaos.jsonl` of one run, opened by its next coordinator.

    A line a fault and one for each coordinator's beginning, written before anything else happens:
    it survives a SIGKILL of this process, which is one of the faults.
    """

    def __init__(
        self, folder: Path, emit: Consumer = lambda _: None, deadly: frozenset[Fault] = DEADLY
    ) -> None:
        """Raises ClusterError if it cannot be read or written."""
        self._folder = folder
        self._path = folder / CHAOS_LOG
        self._emit = emit
        self._deadly_faults = deadly
        try:
            if self._path.exists():
                lines = self._path.read_bytes().splitlines()
            else:
                lines = []
            self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        except OSError as problem:
            raise ClusterError(
                f"{self._path}: cannot be read and appended to ({problem.strerror}): is there room,"
                " and may you write there?"
            ) from None
        entries = [entry for line in lines if (entry := _entry(line)) is not None]
        self.attempt = sum("attempt" in entry for entry in entries)
        """Number of coordinators that wrote to it before."""
        self._injected = Counter(str(entry["fault"]) for entry in entries if "fault" in entry)
        self._deadly = [float(entry["time"]) for entry in entries if entry.get("fault") in deadly]
        self._write(attempt=self.attempt)

    def injected(self, strike: Strike) -> None:
        """Count and write a fault that was injected."""
        if strike.fault in self._deadly_faults:
            self._deadly.append(time.time())
        self._count(strike.fault.value, strike.target, dispatch=strike.dispatch)

    def held(self, update: int) -> None:
        """Count and write that the training waits after `update` updates."""
        self._count(HOLD, "coordinator:0", update=update)
        log.warning("chaos: hold after %d updates, until there is %s", update, self._let_go(update))

    def is_let_go(self, update: int) -> bool:
        """Whether the training need not wait after `update` updates."""
        return self._let_go(update).exists()

    def _let_go(self, update: int) -> Path:
        return self._folder / LET_GO.format(update)

    def _count(self, fault: str, target: str, **facts: int) -> None:
        self._injected[fault] += 1
        self._write(fault=fault, target=target, **facts)
        self._emit(FaultInjected(fault, target))

    def deadly(self, seconds: float) -> int:
        """Count the deadly faults of the last `seconds`, also under earlier coordinators."""
        now = time.time()
        return sum(now - at < seconds for at in self._deadly)

    def describe(self) -> dict[str, Any]:
        """The `chaos` entry of a result."""
        return {"injected": dict(sorted(self._injected.items()))}

    def _write(self, **facts: Any) -> None:
        # One write a line: threads and a death in between leave whole lines.
        os.write(self._file, json.dumps({"time": time.time(), **facts}).encode() + b"\n")


class Hold:
    """`--chaos hold:UPDATE` of one run: a source of no items, exhausted once the run is let go.

    The dispatcher does everything else meanwhile, so a worker may join, leave or be drained, and
    none is overdue: none has an item.
    """

    def __init__(self, updates: tuple[int, ...], record: ChaosLog) -> None:
        self._updates = updates
        self._record = record
        self._now = 0
        """Update at which it holds now, or held before."""

    @classmethod
    def of(cls, plan: ChaosPlan | None, record: ChaosLog | None) -> "Hold | None":
        """Return the hold of a plan, if it has one."""
        if plan is None or not plan.holds or record is None:
            return None
        return cls(plan.holds, record)

    def updates_left(self, applied: int) -> float:
        """Count the updates from `applied` until it holds; infinite if it does no more."""
        ahead = (update for update in self._updates if update >= applied)
        return next((at - applied for at in ahead if not self._record.is_let_go(at)), inf)

    def begin(self, applied: int) -> None:
        """Say that it holds."""
        self._now = applied
        self._record.held(applied)

    def draw(self, task: int) -> None:
        """Return no item."""

    def exhausted(self) -> bool:
        """Return whether the run is let go."""
        return self._record.is_let_go(self._now)

    def withdrawn(self) -> list[int]:
        """Return no item: there is none."""
        return []


def _entry(line: bytes) -> dict[str, Any] | None:
    try:
        entry = parsed_json(line)
    except ValueError:
        return None
    if isinstance(entry, dict) and "time" in entry:
        return entry
    return None
