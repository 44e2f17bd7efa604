"""What every job that trains has: its network, its places and its report.

The parameters are on their places, the functions traced, and the workers in the cluster. Before it
begins, the job says what a person should know.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster.apps.app import App
from cluster.apps.app_network import AppNetwork
from cluster.jobs.busy import BusyMeter, latest_calibration
from cluster.jobs.checkpointing import Counts, Resumption, RunKeeper
from cluster.jobs.evaluation import Evaluation, Evaluator, describe_figures, describe_test
from cluster.jobs.fit import Fit, FitFacts
from cluster.jobs.job_metrics import TrainingMetrics
from cluster.jobs.job_network import (
    arithmetic_of_job,
    as_compiled,
    imported_app,
    network_for,
    refuse_too_many_servers,
)
from cluster.jobs.lifecycle import Job, JobContext
from cluster.jobs.modes import Mode, Setup, mode_of, wire_codecs
from cluster.jobs.roles import WireMeter
from cluster.jobs.run_logs import ChaosLog
from cluster.jobs.session import Runner, Session, Solo, connected
from cluster.jobs.train_result import describe_dataset, digest_of
from cluster.jobs.training import Trainer
from core.consistency import Speeds
from core.data import Dataset
from core.engine.devices import HOST, computing_words, devices_here
from core.engine.runtime import device
from core.engine.threads import Saboteur
from core.inventory import Inventory
from core.inventory.slots import LIBRARY, BatchSlots, ChosenArithmetic, on_devices, without_part
from core.inventory.training import TrainJob
from core.inventory.training_sections import apart_from_recipe
from core.metrics.process import usable_cores
from core.models.native import OWN_THREADS
from core.models.network import Network
from core.parameters import Vector
from core.status.events import BatchesCut, Consumer
from ps_node.shard import VectorState
from worker_node.recordings import LossWeights, Standardization, WorkerWindows

log = logging.getLogger(__name__)


@dataclass
class TrainReport:
    """Filled in as the run goes; what is still None is null in the result."""

    inventory: Inventory
    dataset: Dataset | None = None
    network: Network | None = None
    slots: BatchSlots | None = None
    arithmetic: ChosenArithmetic | None = None
    fits: list[Fit] = field(default_factory=list)
    """Fits that were begun: the one that chooses the epoch, then perhaps the refit."""
    used: Fit | None = None
    """The fit whose parameters were tested and stored."""
    refitted: bool = False
    test: dict[str, Any] = field(default_factory=partial(describe_test, None, None))
    """The entries about the test."""
    before: Counts = field(default_factory=Counts)
    """The counts of the coordinators before this one."""
    counts: Counts | None = None
    wire: WireMeter = field(default_factory=WireMeter)
    busy: BusyMeter | None = None
    """Load of each task since this coordinator began to train."""
    same_bits: bool | None = None
    """Whether this run again, on nodes of the same kind, would end with the same parameters, bit
    for bit."""
    chaos: ChaosLog | None = None

    def is_complete(self, job: TrainJob, *, validated: bool) -> bool:
        """Return whether every epoch was trained that was due, and the model tested.

        The refit counts too, if one was asked for and the fit before it was `validated`.
        """
        if self.test["final"]["loss"] is None or self.used is None:
            return False
        if self.refitted:
            return True
        if job.refit and validated:
            return False
        return self.used.epochs_done == job.epochs or self.used.stopped(
            job.early_stopping, job.epochs
        )

    def describe(self) -> dict[str, Any]:
        """Return what a training adds to the result of any job."""
        job = self.inventory.jobs.train
        chosen = self.fits[0] if self.fits else FitFacts()
        fit = self.used or chosen
        counts = self.counts
        return {
            "mode": job.mode,
            "seed": job.seed,
            "dataset": describe_dataset(self.dataset),
            "model": (
                self.network.describe()
                if self.network
                else {**job.model.model_dump(), "parameters": None}
            ),
            "settings": job.model_dump(mode="json", by_alias=True),
            "slots": asdict(self.slots) if self.slots else None,
            "arithmetic": asdict(self.arithmetic) if self.arithmetic else None,
            "epochs_done": fit.epochs_done,
            "refit": self.refitted,
            **self.test,
            "selected": {
                "epoch": chosen.epoch if self.fits else None,
                **describe_figures(chosen.selected),
            },
            "stopped_early": self._stopped_early(),
            "updates": {
                "scheduled": sum(fit.scheduled for fit in self.fits),
                "applied": counts.applied if counts else None,
                "duplicates_dropped": counts.duplicates_dropped if counts else None,
                "rolled_back": self.before.rolled_back,
                "memories_lost": (counts or self.before).memories_lost,
            },
            "resumptions": self.before.resumptions,
            "chaos": self.chaos.describe() if self.chaos else None,
            "wire": self.wire.describe(),
            "throughput": fit.throughput(),
            "staleness": {"mean": fit.staleness.mean(), "maximum": fit.staleness.maximum},
            "calibration": latest_calibration(Path(self.inventory.runs), self.inventory.cluster),
            "busy": self.busy.describe() if self.busy else None,
            "same_bits": self.same_bits,
            "parameters_sha256": digest_of(self.used.vector) if self.used else None,
        }

    def _stopped_early(self) -> dict[str, int] | None:
        job = self.inventory.jobs.train
        early = job.early_stopping
        if early is None or not self.fits or not self.fits[0].stopped(early, job.epochs):
            return None
        return {"epoch": self.fits[0].epochs_done, "patience": early.patience}


@dataclass(frozen=True)
class Placed:
    """What trains and judges every fit of a job: the functions are traced once."""

    runner: Runner
    mode: Mode
    evaluator: Evaluator


class TrainingJob(Job):
    """A job that trains the network of `jobs.train`."""

    dataset: Dataset
    network: Network

    def __init__(self, context: JobContext) -> None:
        super().__init__(context)
        job = self.job = context.inventory.jobs.train
        self.report = TrainReport(context.inventory)
        self.devices: tuple[str, ...] = (HOST,)
        """Devices of this process that compute."""
        pull, push = wire_codecs(job.codec)
        codecs = {"pull": pull.name, "push": push.name}
        every_seconds = job.checkpoint.every_seconds
        metrics = TrainingMetrics(self.metrics.registry, codecs, every_seconds)
        self.stream.add(self.metrics.metered(metrics.consume))

    def open_app(self) -> App | None:
        """Take the devices of this process, and return the job's app, imported.

        Raises UsageError, AppError, Cancelled.
        """
        job = self.job
        with self.cancel.at_once():
            if not job.facts.needs_roles():
                self.devices = devices_here(job.device, all_of_them=job.facts.spans_devices())
            return imported_app(job, self.app)

    def train_on(self, dataset: Dataset) -> None:
        """Take the data set."""
        self.dataset = self.report.dataset = dataset
        self.unit = dataset.unit
        self.task_type = dataset.task

    def build(self, app: App | None) -> None:
        """Build the network for the data set. Raises UsageError, AppError, Cancelled."""
        with self.cancel.at_once():
            self.network = self.report.network = network_for(self.job, self.dataset, app)
            self.inventory = self.report.inventory = as_compiled(self.inventory, self.network)
            self.job = self.inventory.jobs.train
        if self.job.facts.needs_roles():
            refuse_too_many_servers(self.network, self.inventory)

    def measured(self, rows: NDArray[np.integer], standard: Standardization, seed: int) -> Vector:
        """Return parameters to begin with: float32 (layout.size,), with the statistics of `rows`.

        `standard` is the standardization of these rows.
        """
        blocks = standard.blocks(self.dataset, rows)
        return self.network.measured(self.network.initial(seed), standard.packed(), blocks)

    def choose_arithmetic(self) -> None:
        """Choose the arithmetic that the job asks for, or that suits. Raises UsageError."""
        self.report.arithmetic = arithmetic_of_job(self.job, self.network)
        self.job = self.job.computed_by(self.report.arithmetic.name)

    def connected(self) -> Session | Solo:
        """Return what runs the training. Raises ClusterError, Cancelled."""
        return connected(self.inventory, self.cancel, self.metrics, self.display, self.devices)

    def cut(self, session: Session | Solo, resumption: Resumption | None) -> None:
        """Set the number of slots: the user's, that of the resumed run, or a suitable one."""
        begun = None if resumption is None else resumption.slots
        slots = slots_of(self.job, session, len(self.devices), begun)
        self.report.slots = slots
        if idle := without_part(self.job.mode, slots.number, session.workers):
            log.warning("%s", idle)
        self.job = self.job.cut_into(slots.number)
        self.stream.emit(BatchesCut(slots.number))

    def place(
        self,
        session: Session | Solo,
        state: VectorState,
        weights: LossWeights,
        speeds: Speeds,
        updates_an_epoch: int,
        saboteur: Saboteur | None = None,
    ) -> Placed:
        """Place the parameters, trace every function, and have the workers join.

        Raises ClusterError, Cancelled.
        """
        job = self.job
        network = self.network
        if job.arithmetic == LIBRARY or network.has_library_layers:
            session.require_library()
        in_workers = job.facts.parameters == "workers"
        join = partial(
            session.dispatch, job.deadline_seconds, saboteur, workers_hold_parameters=in_workers
        )
        places: Mapping[int, str] = dict(enumerate(session.places))
        computing = self.devices
        runner: Runner | None = None
        if in_workers and isinstance(session, Session):
            # Its functions span the workers that are there: they are traced once these have joined.
            runner = join()
            places = {task: device("worker", task) for task in sorted(runner.live)}
            computing = tuple(device("worker", task, job.device.kind) for task in places)
        with self.display.busy("placing the parameters, tracing the network"):
            threads = OWN_THREADS
            if len(session.computing) > 1:
                threads = max(1, usable_cores() // len(session.computing))
            windows = WorkerWindows(self.dataset)
            setup = Setup(
                job,
                network,
                windows,
                state,
                places,
                speeds,
                weights=weights,
                devices_that_compute=computing,
                updates_an_epoch=updates_an_epoch,
                threads=threads,
            )
            mode = mode_of(setup)
            evaluation = Evaluation(network, windows, mode.shards, job)
        runner = runner or join()
        return Placed(runner, mode, Evaluator(runner, evaluation))

    @contextmanager
    def trainer(
        self,
        placed: Placed,
        job: TrainJob,
        run: Path,
        fits: list[Fit],
        wire: WireMeter,
        counted: Callable[[], Counts],
        emit: Consumer,
    ) -> Iterator[Trainer]:
        """A trainer of `job`, which keeps the state of `fits` below `run`.

        A cancelled training leaves a checkpoint. Raises ClusterError.
        """
        mode = placed.mode
        sha256 = self.dataset.sha256
        with RunKeeper(
            run, job, sha256, mode.shards, counted, fits, wire, self.stream.emit
        ) as keeper:
            objective = self.network.objective
            trainer = Trainer(placed.runner, mode, job, self.cancel, emit, wire, keeper, objective)
            yield trainer
            if self.cancel.asked and trainer.consistent:
                keeper.keep()


def slots_of(job: TrainJob, session: Session | Solo, devices: int, begun: int | None) -> BatchSlots:
    """Return the number of slots that the user set, that the run began with, or that suits.

    The job's arithmetic is chosen by now. `devices` are those of this process, `begun` the number
    of the run that is resumed.
    """
    if isinstance(job.slots, int):
        return BatchSlots(job.slots, "set by jobs.train.slots")
    if begun is not None:
        return BatchSlots(begun, "the run began with it")
    suitable = job.auto_slots(session.workers, session.worker_cores(), own_model=False)
    if job.arithmetic == LIBRARY:
        return suitable
    if isinstance(session, Session):
        devices = session.workers
    return on_devices(job.mode, job.device.kind, devices, job.batch_size, suitable)


def reproducible(job: TrainJob, processors: set[str | None]) -> bool | None:
    """Return whether another run would end with the same bits, on any number of such nodes.

    By the library also on other ones. None if that is unknown.
    """
    if not job.facts.same_bits(job.mode_options):
        return False
    if job.arithmetic == LIBRARY:
        return True
    if (
        None in processors or job.device.kind != "cpu" or job.compiled
    ):  # no two runs were compared on others
        return None
    if len(processors) > 1:
        log.warning(
            "the nodes have different processors (%s): under TensorFlow's arithmetic, who computes"
            " what changes the last bits of the result",
            ", ".join(sorted(filter(None, processors))),
        )
    return len(processors) == 1


def opening_lines(
    job: TrainJob,
    network: Network,
    session: Session | Solo,
    *,
    cut: BatchSlots | None,
    arithmetic: ChosenArithmetic | None,
    on: tuple[str, ...],
) -> Iterator[str]:
    """Yield what a person should know before a long training. `on`: the devices of this process."""
    described = network.describe()
    assert cut is not None
    assert arithmetic is not None
    servers = len(session.places)
    workers = session.workers
    if isinstance(session, Solo):
        where = "in this process"
    else:
        where = (
            f"on {servers} parameter server{'s' * (servers > 1)}, {workers}"
            f" worker{'s' * (workers > 1)}"
        )
    where += computing_words(job.device, on)
    if isinstance(network, AppNetwork):
        yield from network.notes()
    if changed_values := apart_from_recipe(job.recipe, job.model_dump(mode="json", by_alias=True)):
        yield f"recipe {job.recipe}, but {', '.join(changed_values)}"
    yield (
        f"model: {described['name']}, {described['parameters']:,} parameters {where},"
        f" {job.mode}, batch {job.batch_size} in {cut.number}"
        f" slot{'s' * (cut.number > 1)} ({cut.why}); arithmetic: {arithmetic.name}"
        f" ({arithmetic.why})"
    )
