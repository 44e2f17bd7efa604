"""A training's checkpoints: what one contains, when it is written, how a run resumes from it."""

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from cluster.jobs.fit import Fit
from cluster.jobs.roles import WireMeter
from core.checkpoints import Checkpoint, CheckpointStore, Superseded, read_newest
from core.ground.errors import ClusterError, UsageError, reason_of
from core.inventory.slots import TENSORFLOW, ArithmeticSetting
from core.inventory.training import TrainJob
from core.status.events import CheckpointWritten, Consumer
from ps_node.shard import PlacedVector, Totals, VectorState

log = logging.getLogger(__name__)

FOLDER = "checkpoints"
PROGRESS = "progress"
MAY_DIFFER = ("deadline_seconds", "checkpoint", "refit", "recipe", "data", "app", "tensorboard")
"""Keys of the job that may differ in a resumed run: the content of the data is compared by itself,
and the run has its own copy of the app."""

VECTOR = "vector"
SLOT = "slot/"
FIT = "fit/"


@dataclass(frozen=True)
class Counts(Totals):
    """What a run counts over all its coordinators, its shards' counts among it.

    `rolled_back`: updates that were lost, all of which ran again.

    `elapsed_seconds` is without the pauses between coordinators.
    """

    rolled_back: int = 0
    resumptions: int = 0
    elapsed_seconds: float = 0.0
    memories_lost: int = 0
    """Times a worker's memory of the run was lost: with its process, or with the coordinator that
    it belonged to."""


@dataclass(frozen=True)
class Resumption:
    """A run as its last checkpoint has it: the content of the shards, the fits, the counts."""

    state: VectorState
    fits: tuple[Fit, ...]
    counts: Counts
    wire: WireMeter
    slots: int
    """Slots of the run's batches: `auto` means this number from now on, whatever the
    cluster is now."""
    arithmetic: ArithmeticSetting
    """Arithmetic of the run's gradients, likewise."""


def settings_of(job: TrainJob) -> dict[str, Any]:
    """The settings that a resumed run keeps."""
    described = job.model_dump(mode="json", by_alias=True)
    return {key: value for key, value in described.items() if key not in MAY_DIFFER}


def refuse_other_settings(
    run: Path, then: Mapping[str, Any], now: Mapping[str, Any], prefix: str = ""
) -> None:
    """Raise UsageError where a resumed run has not the settings it began with."""
    differing = sorted(key for key in {*now, *then} if now.get(key) != then.get(key))
    if differing:
        changes = "; ".join(
            f"{prefix}{key} was {then.get(key)!r} and is {now.get(key)!r}" for key in differing
        )
        raise UsageError(
            f"{run}: a resumed run keeps the settings it began with, but {changes}: give it those"
        )


def _renamed(then: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a checkpoint in today's words.

    Before there was a choice, TensorFlow computed, and slots were called micro_batches.
    """
    settings = {"arithmetic": TENSORFLOW, **then}
    if "micro_batches" in settings:
        settings["slots"] = settings.pop("micro_batches")
    return settings


def _completed(then: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a checkpoint, with defaults for the keys that its writer did not have.

    What this version cannot read stays as it is.
    """
    try:
        settings = {
            key: tuple(value) if isinstance(value, list) else value for key, value in then.items()
        }
        return settings_of(TrainJob.model_validate(settings))
    except ValidationError:
        return then


def resume(
    run: Path, job: TrainJob, dataset_sha256: str, size: int
) -> tuple[Resumption | None, tuple[str, ...]]:
    """Return the run's newest whole checkpoint, or None, and a line for each that was refused.

    Raises UsageError if the run was another one: other settings, other recordings.
    """
    checkpoint, refused = read_newest(run / FOLDER)
    if checkpoint is None:
        return None, refused
    try:
        return _resumption(run, checkpoint, job, dataset_sha256, size), refused
    except (KeyError, TypeError, ValueError) as problem:
        raise UsageError(
            f"{run}: its checkpoint of update {checkpoint.update} is not one that this version of"
            f" pscluster made ({reason_of(problem)}): start a new run without --resume"
        ) from None


def _resumption(
    run: Path, checkpoint: Checkpoint, job: TrainJob, dataset_sha256: str, size: int
) -> Resumption:
    facts = checkpoint.facts
    tensors = checkpoint.tensors
    then = _completed(_renamed(facts["settings"]))
    if not isinstance(job.slots, int):
        job = job.cut_into(int(then["slots"]))
    if job.arithmetic == "auto":
        job = job.computed_by(then["arithmetic"])
    refuse_other_settings(run, then, settings_of(job), "jobs.train.")
    if facts["dataset_sha256"] != dataset_sha256:
        raise UsageError(
            f"{run}: was trained on other recordings than --data names now: give it those it began"
            " with"
        )
    if tensors[VECTOR].shape != (size,):
        raise ValueError(
            f"a vector of shape {tensors[VECTOR].shape} for a network of {size} values"
        )
    state = VectorState(
        tensors[VECTOR],
        {
            name.removeprefix(SLOT): value
            for name, value in tensors.items()
            if name.startswith(SLOT)
        },
        int(facts["optimizer_updates"]),
        checkpoint.update,
    )
    fits = tuple(
        Fit.of(of_fit, tensors[f"{FIT}{place}"]) for place, of_fit in enumerate(facts["fits"])
    )
    counts = TypeAdapter(Counts).validate_python(facts["counts"])
    before = progress_of(run)
    counts = replace(
        counts,
        rolled_back=max(counts.rolled_back, before.updates - checkpoint.update),
        resumptions=counts.resumptions + 1,
        memories_lost=max(counts.memories_lost, before.memories_lost + before.memories),
    )
    return Resumption(state, fits, counts, WireMeter.of(facts["wire"]), job.pieces, job.arithmetic)


@dataclass(frozen=True)
class Reached:
    """How far a run is known to have come, zeros if unknown.

    What was lost since its last checkpoint counts. `memories` are those that workers held for it at
    that time. The next coordinator's workers have none of them.
    """

    updates: int = 0
    memories_lost: int = 0
    memories: int = 0

    def to_bytes(self) -> bytes:
        """The file: as long whatever the numbers are, so that one write replaces it."""
        return b"%020d %020d %020d" % (self.updates, self.memories_lost, self.memories)


def progress_of(run: Path) -> Reached:
    """Return the progress that the run's coordinators noted."""
    try:
        numbers = map(int, (run / FOLDER / PROGRESS).read_bytes().split())
        return Reached(*list(numbers)[:3])
    except (OSError, ValueError):
        return Reached()


class RunKeeper(AbstractContextManager["RunKeeper"]):
    """Writes a run's checkpoints."""

    _complained = False

    def __init__(
        self,
        run: Path,
        job: TrainJob,
        dataset_sha256: str,
        shards: PlacedVector[Any],
        counted: Callable[[], Counts],
        fits: list[Fit],
        wire: WireMeter,
        emit: Consumer,
    ) -> None:
        """Raises ClusterError."""
        self._job = job
        self._dataset = dataset_sha256
        self._shards = shards
        self._wire = wire
        self._counted = counted
        self._fits = fits
        self._emit = emit
        self._store = CheckpointStore(run / FOLDER, job.checkpoint.keep)
        self._path = run / FOLDER / PROGRESS
        self._progress: int | None = None
        with self._comfort():
            self._progress = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        before = counted()
        self._updates = shards.state().next_id + before.rolled_back
        self._lost_before = before.memories_lost
        self._last = time.monotonic()
        self._since = 0
        """Updates since the last checkpoint."""

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            with self._comfort():
                os.close(self._progress)
        self._store.close()

    @contextmanager
    def _comfort(self) -> Iterator[None]:
        """Report the first error of the file of the progress: a full disk ends no training."""
        try:
            yield
        except OSError as problem:
            if not self._complained:
                self._complained = True
                log.warning(
                    "%s: cannot be written (%s): the run continues; after a kill it knows less of"
                    " what it lost",
                    self._path,
                    problem.strerror,
                )

    @property
    def every_seconds(self) -> float:
        """Time between two checkpoints."""
        return self._job.checkpoint.every_seconds

    def seconds_left(self) -> float:
        """Time until the next checkpoint; negative once it is due."""
        return self.every_seconds - (time.monotonic() - self._last)

    def updates_left(self) -> float:
        """Updates until the next checkpoint, at least one; infinite if they do not count."""
        return max(1, self._every_updates - self._since)

    def due(self) -> bool:
        """Whether it is time for a checkpoint, or as many updates have passed."""
        return self.seconds_left() <= 0.0 or self._since >= self._every_updates

    @property
    def _every_updates(self) -> float:
        return self._job.checkpoint.every_updates or inf

    def progress(self, updates: int, lost: int = 0, memories: int = 0) -> None:
        """Note that `updates` more are applied.

        It survives a SIGKILL of this process; no fsync is needed for that.

        `lost` memories of workers were lost to this coordinator, which has `memories` of them now.
        """
        self._updates += updates
        self._since += updates
        if self._progress is not None:
            noted = Reached(self._updates, self._lost_before + lost, memories)
            with self._comfort():
                os.pwrite(self._progress, noted.to_bytes(), 0)

    def keep(self) -> None:
        """Write a checkpoint. Every scheduled update is applied.

        A disk that refuses it costs this one alone: the older ones stay, and the next due time
        tries again. Raises Superseded once another process writes the run's checkpoints.
        """
        begin = time.monotonic()
        self._since = 0
        state = self._shards.state()
        tensors = {
            VECTOR: state.vector,
            **{f"{SLOT}{name}": value for name, value in state.slots.items()},
        }
        tensors |= {f"{FIT}{place}": fit.vector for place, fit in enumerate(self._fits)}
        facts = {
            "settings": settings_of(self._job),
            "dataset_sha256": self._dataset,
            "optimizer_updates": state.optimizer_updates,
            "fits": [fit.facts() for fit in self._fits],
            "wire": self._wire.sums(),
            "counts": asdict(self._counted()),
        }
        try:
            self._store.write(Checkpoint(state.next_id, tensors, facts))
        except Superseded:
            raise
        except ClusterError as problem:
            self._last = time.monotonic()
            log.warning(
                "%s. The run continues with the checkpoint before, and tries again when the next"
                " one is due",
                problem,
            )
            return
        self._last = time.monotonic()
        size = sum(tensor.nbytes for tensor in tensors.values())
        self._emit(CheckpointWritten(self._last - begin, size, state.next_id))
