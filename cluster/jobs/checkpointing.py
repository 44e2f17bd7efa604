"""A training's checkpoints: what one contains, when it is written, how a run resumes from it."""

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from cluster.checkpoints import Checkpoint, CheckpointStore, read_newest
from cluster.errors import UsageError, reason_of
from cluster.inventory.training import TrainJob
from cluster.jobs.fit import Fit
from cluster.jobs.roles import WireMeter
from cluster.status.events import CheckpointWritten, Consumer
from ps_node.shard import PlacedVector, VectorState

FOLDER = "checkpoints"
PROGRESS = "progress"
MAY_DIFFER = ("deadline_seconds", "checkpoint", "refit", "recipe", "data", "app", "tensorboard")
"""Keys of the job that may differ in a resumed run: the content of the data is compared by itself, and the run has its
own copy of the app."""

VECTOR, SLOT, FIT = "vector", "slot/", "fit/"


@dataclass(frozen=True)
class Counts:
    """What a run counts over all its coordinators. `rolled_back`: updates that were lost, all of which ran again.

    `elapsed_seconds` is without the pauses between coordinators.
    """

    applied: int = 0
    duplicates_dropped: int = 0
    rolled_back: int = 0
    resumptions: int = 0
    elapsed_seconds: float = 0.0


@dataclass(frozen=True)
class Resumption:
    """A run as its last checkpoint has it: the content of the shards, the fits, the counts."""

    state: VectorState
    fits: tuple[Fit, ...]
    counts: Counts
    wire: WireMeter
    micro_batches: int
    """What the run's batches are cut into: `auto` means this number from now on, whatever the cluster is now."""


def settings_of(job: TrainJob) -> dict[str, Any]:
    """The settings that a resumed run keeps."""
    described = job.model_dump(mode="json", by_alias=True)
    return {key: value for key, value in described.items() if key not in MAY_DIFFER}


def _completed(then: dict[str, Any]) -> dict[str, Any]:
    """The settings of a checkpoint, with the defaults of keys that this version has and the one that wrote it had not.

    What this version cannot read stays as it is.
    """
    try:
        given = {key: tuple(value) if isinstance(value, list) else value for key, value in then.items()}
        return settings_of(TrainJob.model_validate(given))
    except ValidationError:
        return then


def resume(run: Path, job: TrainJob, dataset_sha256: str, size: int) -> tuple[Resumption | None, tuple[str, ...]]:
    """The run's newest whole checkpoint, and a line for each that was refused; None if there is none.

    Raises UsageError if the run was another one: other settings, other recordings.
    """
    checkpoint, refused = read_newest(run / FOLDER)
    if checkpoint is None:
        return None, refused
    try:
        return _resumption(run, checkpoint, job, dataset_sha256, size), refused
    except (KeyError, TypeError, ValueError) as problem:
        raise UsageError(
            f"{run}: its checkpoint of update {checkpoint.update} is not one that this version of pscluster made "
            f"({reason_of(problem)}): start a new run without --resume"
        ) from None


def _resumption(run: Path, checkpoint: Checkpoint, job: TrainJob, dataset_sha256: str, size: int) -> Resumption:
    facts, tensors = checkpoint.facts, checkpoint.tensors
    then = _completed(facts["settings"])
    job = job if isinstance(job.micro_batches, int) else job.cut_into(int(then["micro_batches"]))
    now = settings_of(job)
    differing = sorted(key for key in {*now, *then} if now.get(key) != then.get(key))
    if differing:
        shown = "; ".join(f"jobs.train.{key} was {then.get(key)!r} and is {now.get(key)!r}" for key in differing)
        raise UsageError(f"{run}: a resumed run keeps the settings it began with, but {shown}: give it those")
    if facts["dataset_sha256"] != dataset_sha256:
        raise UsageError(f"{run}: was trained on other recordings than --data names now: give it those it began with")
    if tensors[VECTOR].shape != (size,):
        raise ValueError(f"a vector of shape {tensors[VECTOR].shape} for a network of {size} values")
    state = VectorState(
        tensors[VECTOR],
        {name.removeprefix(SLOT): value for name, value in tensors.items() if name.startswith(SLOT)},
        int(facts["optimizer_updates"]),
        checkpoint.update,
    )
    fits = tuple(Fit.of(of_fit, tensors[f"{FIT}{place}"]) for place, of_fit in enumerate(facts["fits"]))
    counts = TypeAdapter(Counts).validate_python(facts["counts"])
    rolled_back = max(counts.rolled_back, applied_before(run) - checkpoint.update)
    counts = replace(counts, rolled_back=rolled_back, resumptions=counts.resumptions + 1)
    return Resumption(state, fits, counts, WireMeter.of(facts["wire"]), job.pieces)


def applied_before(run: Path) -> int:
    """How many updates the run is known to have applied so far, all that were lost included; 0 if unknown."""
    try:
        return int((run / FOLDER / PROGRESS).read_bytes())
    except (OSError, ValueError):
        return 0


class RunKeeper(AbstractContextManager["RunKeeper"]):
    """Writes a run's checkpoints."""

    def __init__(
        self, run: Path, job: TrainJob, dataset_sha256: str, shards: PlacedVector[Any],
        counted: Callable[[], Counts], fits: list[Fit], wire: WireMeter, emit: Consumer,
    ) -> None:  # fmt: skip
        """Raises ClusterError."""
        self._job, self._dataset, self._shards, self._wire = job, dataset_sha256, shards, wire
        self._counted, self._fits, self._emit = counted, fits, emit
        self._store = CheckpointStore(run / FOLDER, job.checkpoint.keep)
        self._progress = os.open(run / FOLDER / PROGRESS, os.O_WRONLY | os.O_CREAT, 0o644)
        self._updates = shards.state().next_id + counted().rolled_back
        self._last = time.monotonic()

    def __exit__(self, *_: object) -> None:
        os.close(self._progress)
        self._store.close()

    @property
    def every_seconds(self) -> float:
        """Time between two checkpoints."""
        return self._job.checkpoint.every_seconds

    def due(self) -> bool:
        """Whether it is time for a checkpoint."""
        return time.monotonic() - self._last >= self.every_seconds

    def progress(self, updates: int) -> None:
        """Note that `updates` more are applied. It survives a SIGKILL of this process; no fsync is needed for that."""
        self._updates += updates
        os.pwrite(self._progress, b"%020d" % self._updates, 0)

    def keep(self) -> None:
        """Write a checkpoint. Every scheduled update is applied. Raises ClusterError if the disk refuses it."""
        begin = time.monotonic()
        state = self._shards.state()
        tensors = {VECTOR: state.vector, **{f"{SLOT}{name}": value for name, value in state.slots.items()}}
        tensors |= {f"{FIT}{place}": fit.vector for place, fit in enumerate(self._fits)}
        facts = {
            "settings": settings_of(self._job),
            "dataset_sha256": self._dataset,
            "optimizer_updates": state.optimizer_updates,
            "fits": [fit.facts() for fit in self._fits],
            "wire": self._wire.counted(),
            "counts": asdict(self._counted()),
        }
        self._store.write(Checkpoint(state.next_id, tensors, facts))
        self._last = time.monotonic()
        size = sum(tensor.nbytes for tensor in tensors.values())
        self._emit(CheckpointWritten(self._last - begin, size, state.next_id))
