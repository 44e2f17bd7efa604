"""The job `train`: data, split, fit, choose, refit if asked, one look at the test set, the model."""

import logging
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cluster.apps.app import AppError
from cluster.apps.networks import AppNetwork
from cluster.consistency.policy import Speeds
from cluster.data import split_validation
from cluster.data.dataset import CLASSIFICATION
from cluster.engine.chaos import ChaosPlan
from cluster.engine.devices import HOST, computing_words, devices_here
from cluster.engine.lost import ParameterServerLost
from cluster.engine.runtime import device
from cluster.errors import UsageError
from cluster.inventory import Inventory
from cluster.inventory.micro_batches import MicroBatches, auto_micro_batches, on_devices
from cluster.inventory.recipes import apart_from_recipe
from cluster.inventory.training import TrainJob
from cluster.jobs import checkpointing, evaluate
from cluster.jobs.busy import BusyMeter
from cluster.jobs.cancel import Cancel
from cluster.jobs.checkpointing import Counts, Resumption, RunKeeper
from cluster.jobs.evaluate import Evaluation, Evaluator, figures_computed
from cluster.jobs.event_files import FOLDER, EventFiles
from cluster.jobs.fit import Fit, Plan, Rows, epochs_of_refit
from cluster.jobs.job_metrics import TrainingMetrics
from cluster.jobs.lifecycle import Job
from cluster.jobs.model_of_job import imported_app, network_for
from cluster.jobs.modes.mode import Mode, Setup, mode_of, wire_codecs
from cluster.jobs.progress import Display
from cluster.jobs.run_folder import RunFolder, latest_calibration, sabotage, speeds_of
from cluster.jobs.session import Runner, Session, Solo, connected
from cluster.jobs.sources import load_dataset
from cluster.jobs.teachers import Teachers
from cluster.jobs.train_result import TrainReport, store
from cluster.jobs.trained_on import TrainedOn
from cluster.jobs.training import DivergedError, Trainer
from cluster.parameters import Vector
from cluster.status.events import BatchesCut, Diverged, Restored, StageBegan, UpdatesCounted, Validating
from cluster.status.parts import Figures
from ps_node.shard import VectorState
from worker_node.recordings import Standardization, WorkerWindows
from worker_node.weights import LossWeights

log = logging.getLogger(__name__)


def reproducible(job: TrainJob, processors: set[str | None]) -> bool | None:
    """Whether another run would end with the same bits, on any number of nodes of this kind; None if unknown."""
    if not job.facts.same_bits(job.mode_options):
        return False
    if None in processors or job.device.kind != "cpu" or job.compiled:  # no two runs were compared on others
        return None
    if len(processors) > 1:
        log.warning(
            "the nodes have different processors (%s): who computes what changes the last bits of the result",
            ", ".join(sorted(filter(None, processors))),
        )
    return len(processors) == 1


class TrainRun(Job):
    """One run of the job."""

    name = "train"

    def __init__(
        self, inventory: Inventory, display: Display, cancel: Cancel, resumed: Path | None = None,
        chaos: ChaosPlan | None = None,
    ) -> None:  # fmt: skip
        """`resumed`: the folder of the run to resume. `chaos`: faults to inject."""
        job = inventory.jobs.train
        super().__init__(inventory, display, cancel, chaos, job.mode, job.model.name)
        self.job, self.resumed = job, resumed
        self.report = TrainReport(inventory)
        self.resumption: Resumption | None = None
        self.teachers: Teachers | None = None
        pull, push = wire_codecs(job.codec)
        of_training = TrainingMetrics(self.metrics.registry, pull.name, push.name, job.checkpoint.every_seconds)
        self.stream.add(self.metrics.metered(of_training.consume))
        self._devices: tuple[str, ...] = (HOST,)
        self._notes: list[tuple[int, str]] = []
        """Lines of the preparation for the run's log, which is not open yet then."""

    def prepare(self) -> None:
        """Prepare the recordings, build the network, refuse what cannot work. Raises ClusterError, Cancelled."""
        job = self.job
        if self.chaos is not None and not job.facts.needs_roles():
            raise UsageError(
                f"--chaos: jobs.train.mode is {job.mode}, which has no workers to strike: take another mode"
            )
        with self.cancel.at_once():
            if not job.facts.needs_roles():
                self._devices = devices_here(job.device, all_of_them=job.facts.spans_devices())
            app = imported_app(self.job, self.app)
        self.dataset = self.report.dataset = load_dataset(
            self.inventory, self.display, self.cancel, self.stream.emit, app
        )
        self.unit, self.task_type = self.dataset.unit, self.dataset.task
        if self.dataset.held_out.leak:
            self._notes.append((logging.WARNING, f"the test set: {self.dataset.held_out.leak}"))
        known = slice(self.dataset.train_windows)
        one_each = self.dataset.task == CLASSIFICATION and not self.dataset.targets.shape
        classes = self.dataset.classes()[known] if one_each else None
        self.train_rows, self.validation_rows = split_validation(
            self.dataset.subjects()[known], job.validation_subjects, job.seed, classes
        )
        if job.early_stopping is not None and not len(self.validation_rows):
            raise UsageError(
                f"jobs.train.early_stopping: it goes by the validation, for which these {self.dataset.train_windows} "
                "training windows are too few: set it to null, or use more recordings"
            )
        self._plan(self.train_rows)
        with self.cancel.at_once():
            self.network = self.report.network = network_for(self.job, self.dataset, app)
        try:
            self.network.layout.shards(len(self.inventory.of_role("ps")) if job.facts.needs_roles() else 1)
        except ValueError as problem:
            raise UsageError(f"nodes: {problem}") from None
        self._choose_teacher()
        if self.resumed is not None:
            self.resumption = self._resumption(self.resumed)
        self.standardization = Standardization.of(self.dataset, self.train_rows)
        self.weights = LossWeights.of(job.class_weights, self.dataset, self.train_rows)
        self.cancel.check()

    def _choose_teacher(self) -> None:
        if self.job.distill is None:
            return
        runs = Path(self.inventory.runs)
        self.teachers = Teachers(self.job.distill.run, runs, self.dataset, self.resumed)
        self.teachers.place_for(self.train_rows, self.job.seed)
        self.report.teachers = self.teachers.describe()

    def _resumption(self, run: Path) -> Resumption | None:
        found, refused = checkpointing.resume(run, self.job, self.dataset.sha256, self.network.layout.size)
        self._notes += [(logging.WARNING, line) for line in refused]
        if found is None:
            lost = checkpointing.applied_before(run)
            self.report.before = Counts(rolled_back=lost)
            line = f"{run}: no checkpoint: {lost} updates run again, from the beginning"
            self._notes.append((logging.WARNING, line))
            return None
        self._notes.append((logging.INFO, f"{run}: continues from update {found.state.next_id}"))
        report = self.report
        report.fits, report.wire, report.before = [*found.fits], found.wire, found.counts
        return found

    def run(self, folder: RunFolder) -> None:
        """Train, choose, test, store. Raises ClusterError; when cancelled it ends with what there is by then."""
        for level, line in self._notes:
            log.log(level, "%s", line)
        if self.teachers is not None:
            self.teachers.keep(folder.path)
        session_of_job = connected(self.inventory, self.cancel, self.metrics, self.display, self._devices)
        with session_of_job as session, ExitStack() as stack:
            if self.job.tensorboard:
                self.stream.add(stack.enter_context(EventFiles(folder.path / FOLDER)).consume)
            self._cut(session)
            if self.resumed is not None:
                done = [fit.epochs_done for fit in self.report.fits]
                self.stream.emit(Restored(*[*done, 0, 0][:2]))
            mode, runner, evaluation = self._placed(session, folder)
            self._say_what(session)
            self.report.same_bits = reproducible(self.job, session.processors())
            self.report.wire.read = session.server_traffic
            self._totals = mode.shards.totals
            self._count_updates()
            evaluator = Evaluator(runner, evaluation)
            with BusyMeter(self.inventory, session.tasks, session.computing) as self.report.busy:
                used = self._trained(runner, mode, evaluator, folder)
            if not self.report.fits[0].scheduled:
                return
            self.report.used = used
            mode.shards.reset(used.vector)
            # Before the test: whatever happens there, the training was not for nothing.
            dataset = self.dataset
            seen = np.arange(dataset.train_windows) if self.report.refitted else self.train_rows
            store(
                folder.path / "model", self.network, used.vector, self.standardization, dataset.labels, dataset.sha256,
                TrainedOn.of(dataset, seen),
            )  # fmt: skip
            self._export(folder, used)
            self._test(evaluator, used)

    def _export(self, folder: RunFolder, used: Fit) -> None:
        """The app's model in the format of its library; that it cannot be written costs the run nothing else."""
        if not isinstance(self.network, AppNetwork):
            return
        try:
            self.network.export(used.vector, folder.path / "model")
        except AppError as problem:
            log.warning("%s", problem)

    def _placed(self, session: Session | Solo, folder: RunFolder) -> tuple[Mode, Runner, Evaluation]:
        """The parameters on their places, every function traced, and the workers in the cluster."""
        job, network = self.job, self.network
        state = self.resumption.state if self.resumption else VectorState(self._initial(self.train_rows))
        windows = WorkerWindows(self.dataset)
        calibration = latest_calibration(Path(self.inventory.runs), self.inventory.cluster)
        self.job_metrics.speeds = calibration or {}
        speeds = Speeds(speeds_of(calibration))
        functions: dict[str, Any] = {}
        places = dict(enumerate(session.places))
        in_workers = job.facts.parameters == "workers"
        saboteur, self.report.chaos = sabotage(
            self.chaos, folder.path, len(session.places), self.stream.emit, workers_hold_parameters=in_workers
        )
        runner: Runner | None = None
        computing: tuple[str, ...] = self._devices
        if in_workers and isinstance(session, Session):
            # Its functions span the workers that are there: known, and traced, only once they have joined.
            runner = dispatcher = session.dispatch(functions, job.deadline_seconds, saboteur)
            dispatcher.holders = dispatcher.live
            places = {task: device("worker", task) for task in sorted(dispatcher.live)}
            computing = tuple(device("worker", task, job.device.kind) for task in places)
        with self.display.busy("placing the parameters, tracing the network"):
            mode = mode_of(Setup(
                job, network, windows, state, places, session.workers, speeds, weights=self.weights,
                devices_that_compute=computing, updates_an_epoch=self._plan(self.train_rows).per_epoch,
                teachers=() if self.teachers is None else self.teachers.taught_by,
            ))  # fmt: skip
            functions |= mode.functions
            evaluation = Evaluation(network, windows, mode.shards, compiled=job.compiled)
            functions[evaluate.FUNCTION] = evaluation.function
        return mode, runner or session.dispatch(functions, job.deadline_seconds, saboteur), evaluation

    def _trained(self, runner: Runner, mode: Mode, evaluator: Evaluator, folder: RunFolder) -> Fit:
        """The fit to be used, with checkpoints on the way."""
        keeper = RunKeeper(
            folder.path, self.job, self.dataset.sha256, mode.shards, self._counted, self.report.fits, self.report.wire,
            self.stream.emit,
        )  # fmt: skip
        with keeper:
            trainer = Trainer(
                runner, mode, self.job, self.cancel, self.stream.emit, self.report.wire, keeper,
                objective=self.network.objective,
            )  # fmt: skip
            try:
                used = self._fits(trainer, evaluator, mode.shards)
            finally:
                self.report.memories_lost = mode.memories.lost
                with suppress(ParameterServerLost):
                    self.report.counts = self._count_updates()
            if self.cancel.asked and trainer.consistent:
                keeper.keep()
        return used

    def _test(self, evaluator: Evaluator, used: Fit) -> None:
        """A cancelled run is tested too, which makes a result of it, but only while the person still waits."""
        found = evaluate.tested(evaluator, self.dataset, self.standardization, self.stream.emit, self.cancel.overdue)
        if found.examples < self.dataset.test_windows:
            self.display.say("test: interrupted, no figures; run `fab job evaluate`")
            return
        self.report.final, self.report.confusion = found.figures, found.confusion
        self.report.precision_recall = found.describe_curves(self.dataset.labels)
        if found.figures is not None:
            self.stream.emit(figures_computed("test", found, self.dataset.labels, used.epoch))

    def _cut(self, session: Session | Solo) -> None:
        """Give the job a number of micro-batches: that of the user or of the run, or one that suits these workers."""
        if isinstance(self.job.micro_batches, int):
            found = MicroBatches(self.job.micro_batches, "set by jobs.train.micro_batches")
        elif self.resumption is not None:
            found = MicroBatches(self.resumption.micro_batches, "the run began with it")
        else:
            found = auto_micro_batches(self.job.mode, self.job.batch_size, session.workers, session.worker_cores())
            devices = len(self._devices) if isinstance(session, Solo) else session.workers
            found = on_devices(self.job.mode, self.job.device.kind, devices, self.job.batch_size, found)
        self.report.micro_batches = found
        self.job = self.job.cut_into(found.number)
        self.stream.emit(BatchesCut(found.number))

    def _count_updates(self) -> Counts:
        counts = self._counted()
        self.stream.emit(
            UpdatesCounted(counts.applied, counts.duplicates_dropped, counts.rolled_back, counts.resumptions)
        )
        return counts

    def _counted(self) -> Counts:
        """The counts of the whole surviving history, what came before the checkpoint included."""
        now, before = self._totals(), self.report.before
        return replace(
            before, applied=now.applied + before.applied, elapsed_seconds=self.elapsed_seconds(),
            duplicates_dropped=now.duplicates_dropped + before.duplicates_dropped,
        )  # fmt: skip

    def complete(self) -> bool:
        """Whether every epoch was trained that was due, of the refit too if one was asked for, and the model tested."""
        used, report, job = self.report.used, self.report, self.job
        refitted = report.refitted or not job.refit or not len(self.validation_rows)
        if report.final is None or used is None or not refitted:
            return False
        return report.refitted or used.epochs_done == job.epochs or used.stopped(job.early_stopping, job.epochs)

    def elapsed_seconds(self) -> float:
        """Since the run began, without the pauses between coordinators."""
        return self.report.before.elapsed_seconds + super().elapsed_seconds()

    def result(self) -> dict[str, Any]:
        """What there is so far."""
        return {**super().result(), **self.report.describe()}

    def _fits(self, trainer: Trainer, evaluator: Evaluator, shards: Any) -> Fit:
        """The fit that chooses the epoch, and the refit if one is asked for; the one to be used."""
        fits = self.report.fits
        if not fits:
            fits.append(Fit(vector=shards.read()))
        chosen = fits[0]
        if len(fits) == 1:
            validate = partial(self._validate, evaluator, chosen) if len(self.validation_rows) else None
            self._fit(trainer, "train", chosen, self.train_rows, validate)
        if not self.job.refit or not len(self.validation_rows) or self.cancel.asked:
            return chosen
        every_row = np.arange(self.dataset.train_windows, dtype=np.int32)
        before, self.standardization = self.standardization, Standardization.of(self.dataset, every_row)
        if len(fits) == 1:
            initial = self._initial(every_row)
            shards.reset(initial)
            done = chosen.epochs_done * self._plan(self.train_rows).per_epoch
            fits.append(Fit(vector=initial, first_id=chosen.first_id + done))
        refit, due = fits[1], epochs_of_refit(self.job, chosen)
        self._fit(trainer, "refit", refit, every_row, None, until=due)
        if refit.epochs_done < due:
            # A refit that was cut short is a worse model than the finished one it was to replace.
            self.standardization = before
            return chosen
        self.report.refitted = True
        return refit

    def _initial(self, rows: Rows | Any) -> Vector:
        """What a fit on these rows begins with. The standardization is theirs already."""
        blocks = self.standardization.blocks(self.dataset, rows)
        return self.network.measured(self.network.initial(self.job.seed), self.standardization.packed(), blocks)

    def _plan(self, rows: Rows | Any, until: int | None = None) -> Plan:
        job = self.job
        return Plan(
            rows.astype(np.int32), job.batch_size, job.epochs, job.replay_worst_batches, job.seed,
            job.facts.batches(job.mode_options), until=until,
        )  # fmt: skip

    def _fit(
        self, trainer: Trainer, stage: str, fit: Fit, rows: Any, validate: Callable[[], Figures | None] | None,
        until: int | None = None,
    ) -> None:  # fmt: skip
        plan = self._plan(rows, until)
        self.stream.emit(StageBegan(stage, plan.updates, "updates"))
        try:
            trainer.fit(stage, fit, plan, self.standardization, validate, self._count_updates)
        except DivergedError as problem:
            self.stream.emit(Diverged(str(problem)))
            raise

    def _validate(self, evaluator: Evaluator, fit: Fit) -> Figures | None:
        """Figures of the parameters as they are on the held-out people."""
        self.stream.emit(Validating(True))
        found = evaluator(self.validation_rows, self.standardization, stop=lambda: self.cancel.asked)
        if found.figures is not None and not self.cancel.asked:
            epoch = fit.cursor.epoch + 1
            self.stream.emit(figures_computed("validation", found, self.dataset.labels, epoch))
        self.stream.emit(Validating(False))
        return found.figures

    def _say_what(self, session: Session | Solo) -> None:
        described, cut = self.network.describe(), self.report.micro_batches
        assert cut is not None
        servers, workers = len(session.places), session.workers
        where = (
            "in this process"
            if isinstance(session, Solo)
            else f"on {servers} parameter server{'s' * (servers > 1)}, {workers} worker{'s' * (workers > 1)}"
        )
        where += computing_words(self.job.device, self._devices)
        for note in self.network.notes() if isinstance(self.network, AppNetwork) else ():
            self.display.say(note)
        if others := apart_from_recipe(self.job.recipe, self.job.model_dump(mode="json", by_alias=True)):
            self.display.say(f"recipe {self.job.recipe} with other values: {', '.join(others)}")
        self.display.say(
            f"model: {described['name']}, {described['parameters']:,} parameters {where}, {self.job.mode}, "
            f"batch {self.job.batch_size} in {cut.number} micro-batch{'es' * (cut.number > 1)} ({cut.why})"
        )
