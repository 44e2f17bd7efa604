"""Logs of a run beside its history: the injected faults, and TensorBoard's event files.

The faults of `--chaos` are logged over all coordinators of the run.

Event files are a consumer of the run's events, by TensorFlow's record writer. A folder a split,
`train`, `validation` and `test`, so that TensorBoard draws the same figure of all in one chart. The
step of a scalar is its epoch; a refit has folders of its own. A file is a TFRecord of `Event`
messages. No operation runs: what is written waits for no worker.
"""

import json
import logging
import os
import socket
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from math import inf
from pathlib import Path
from typing import Any

from core.engine.chaos import DEADLY, HOLD, Chaos, ChaosPlan, Fault, Strike, deadly_faults
from core.engine.threads import Saboteur
from core.ground.errors import ClusterError
from core.ground.files import parsed_json
from core.ground.lazy import tf
from core.status.events import Consumer, EpochEnded, Event, FaultInjected, FiguresComputed, Restored
from core.status.parts import FIGURE_KEYS, Figures

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

    def record_hold(self, update: int) -> None:
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
        self._record.record_hold(applied)

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


FOLDER = "tensorboard"
VERSION = "brain.Event:2"
"""TensorBoard reads files that begin with it."""
REFIT = "refit"


class EventFiles(AbstractContextManager["EventFiles"]):
    """The files below one folder; each is made with its first figures.

    `consume` raises OSError, OpError.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writers: dict[str, Any] = {}
        self._restored_epochs: tuple[int, int] | None = None
        self._stage = "train"

    def __exit__(self, *_: object) -> None:
        for writer in self._writers.values():
            with suppress(tf.errors.OpError):  # a full disk: the run has its result
                writer.close()

    def consume(self, event: Event) -> None:
        """Write the scalars of an event that has some."""
        match event:
            case Restored():
                self._restored_epochs = event.train_epochs, event.refit_epochs
            case EpochEnded():
                self._stage = event.stage
                rates = {
                    "learning_rate": event.rate,
                    "windows_per_second": event.windows_per_second,
                }
                trained = {"loss": event.loss, "accuracy": event.accuracy}
                self._write(
                    "train",
                    event.epoch,
                    {**trained, **{f"rates/{name}": rate for name, rate in rates.items()}},
                )
                if event.validation is not None:
                    self._write("validation", event.epoch, _scalars(event.validation))
            case FiguresComputed(split="test"):
                self._write("test", event.epoch or 0, _scalars(event.figures))

    def _write(self, split: str, epoch: int, scalars: Mapping[str, float | None]) -> None:
        if self._stage == REFIT:
            name = f"{REFIT}-{split}"
        else:
            name = split
        writer = self._writers.get(name) or self._begun(name)
        values = [
            tf.compat.v1.Summary.Value(tag=tag, simple_value=value)
            for tag, value in scalars.items()
            if value is not None
        ]
        _record(writer, step=epoch, summary=tf.compat.v1.Summary(value=values))
        writer.flush()

    def _begun(self, name: str) -> Any:
        folder = self._folder / name
        folder.mkdir(parents=True, exist_ok=True)
        # Of two coordinators of a run that begin in one second, the second must not overwrite.
        path = folder / f"events.out.tfevents.{time.time_ns()}.{socket.gethostname()}"
        writer = self._writers[name] = tf.io.TFRecordWriter(str(path))
        _record(writer, file_version=VERSION)
        if self._restored_epochs is not None:
            # The epochs behind the checkpoint are trained again: TensorBoard forgets what it had
            # from here on.
            epochs = self._restored_epochs[name.startswith(REFIT)]
            _record(
                writer,
                step=epochs + 1,
                session_log=tf.compat.v1.SessionLog(status=tf.compat.v1.SessionLog.START),
            )
        return writer


def _record(writer: Any, **content: Any) -> None:
    writer.write(tf.compat.v1.Event(wall_time=time.time(), **content).SerializeToString())


def _scalars(figures: Figures) -> dict[str, float | None]:
    standard_figures = {key: getattr(figures, key) for key in FIGURE_KEYS}
    return {
        **standard_figures,
        **{f"figures/{name}": value for name, value in figures.others.items()},
    }
