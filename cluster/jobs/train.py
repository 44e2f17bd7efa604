"""The job `train`: data, split, fit, choose, refit if asked, one look at the test set."""

import logging
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster.jobs import checkpointing
from cluster.jobs.busy import BusyMeter, latest_calibration, speeds_of
from cluster.jobs.checkpointing import Counts, Resumption, RunKeeper
from cluster.jobs.evaluation import (
    Evaluator,
    describe_groups,
    figures_computed,
    run_test_stage,
    say_groups,
    wrong_stretches,
)
from cluster.jobs.fit import Fit, Plan, Rows, epochs_of_refit
from cluster.jobs.job_network import (
    arithmetic_of_job,
    as_compiled,
    imported_app,
    model_to_continue,
    network_for,
    refuse_too_many_servers,
    standardization_for,
    with_parameters_of,
)
from cluster.jobs.lifecycle import Job, JobContext
from cluster.jobs.modes import Setup
from cluster.jobs.placing import (
    Placed,
    meter_training,
    opening_lines,
    place,
    reproducible,
    slots_of,
)
from cluster.jobs.run_folder import RunFolder
from cluster.jobs.run_logs import FOLDER, EventFiles, Hold, sabotage
from cluster.jobs.session import Session, Solo, connected
from cluster.jobs.sources import TrainRows, load_dataset
from cluster.jobs.train_result import TrainReport, export_app, store
from cluster.jobs.training import Trainer
from cluster.jobs.updates import DivergedError
from core.consistency import Speeds
from core.engine.changes import ParameterServerLost
from core.engine.devices import HOST, devices_here
from core.ground.errors import UsageError
from core.inventory.slots import without_part
from core.parameters import Vector
from core.status import events
from core.status.parts import Figures, shared
from ps_node.shard import VectorState
from worker_node.recordings import LossWeights, WorkerWindows

log = logging.getLogger(__name__)


class TrainRun(Job):
    """One run of the job."""

    name = "train"

    def __init__(self, context: JobContext) -> None:
        super().__init__(context)
        job = self.job = context.inventory.jobs.train
        self.report = TrainReport(context.inventory)
        self.resumption: Resumption | None = None
        self.validation_rows: NDArray[np.integer] = np.empty(0, np.int32)
        meter_training(self, job)
        self._devices: tuple[str, ...] = (HOST,)
        self._notes: list[tuple[int, str]] = []
        """Lines of the preparation for the run's log, which is not open yet then."""

    def prepare(self) -> None:
        """Prepare the recordings, build the network, refuse what cannot work.

        Raises ClusterError, Cancelled.
        """
        job = self.job
        if self.chaos and self.chaos.probabilities and not job.facts.needs_roles():
            raise UsageError(
                f"--chaos: jobs.train.mode is {job.mode}, which has no workers to strike: take"
                " another mode"
            )
        with self.cancel.at_once():
            if not job.facts.needs_roles():
                self._devices = devices_here(job.device, all_of_them=job.facts.spans_devices())
            app = imported_app(self.job, self.app)
        self.dataset = self.report.dataset = load_dataset(
            self.inventory, self.display, self.cancel, self.stream.emit, app
        )
        self.unit = self.dataset.unit
        self.task_type = self.dataset.task
        rows = TrainRows.of(self.dataset, job)
        self.train_rows = rows.train
        self.validation_rows = rows.validation
        self._notes += [(logging.WARNING, line) for line in rows.notes]
        Plan.of_job(self.job, self.train_rows)
        with self.cancel.at_once():
            self.network = self.report.network = network_for(self.job, self.dataset, app)
            self.inventory = self.report.inventory = as_compiled(self.inventory, self.network)
            self.job = self.inventory.jobs.train
        self.before = model_to_continue(self.inventory, self.network, self.dataset)
        refuse_too_many_servers(self.network, self.inventory)
        if self.resumed is not None:
            self.resumption = self._resumption(self.resumed)
        if self.resumption is not None:
            self.job = self.job.computed_by(self.resumption.arithmetic)
        self.report.arithmetic = arithmetic_of_job(self.job, self.network)
        self.job = self.job.computed_by(self.report.arithmetic.name)
        self.standardization = standardization_for(self.before, self.dataset, self.train_rows)
        self.weights = LossWeights.from_setting(job.class_weights, self.dataset, self.train_rows)
        self.cancel.check()

    def _resumption(self, run: Path) -> Resumption | None:
        resumption, refused = checkpointing.resume(
            run, self.job, self.dataset.sha256, self.network.layout.size
        )
        self._notes += [(logging.WARNING, line) for line in refused]
        if resumption is None:
            before = checkpointing.progress_of(run)
            self.report.before = Counts(
                rolled_back=before.updates, memories_lost=before.memories_lost + before.memories
            )
            line = f"{run}: no checkpoint: {before.updates} updates run again, from the beginning"
            self._notes.append((logging.WARNING, line))
            return None
        self._notes.append(
            (logging.INFO, f"{run}: continues from update {resumption.state.next_id}")
        )
        report = self.report
        report.fits = [*resumption.fits]
        report.wire = resumption.wire
        report.before = resumption.counts
        return resumption

    def run(self, folder: RunFolder) -> None:
        """Train, choose, test, store.

        Raises ClusterError; when cancelled it ends with what there is by then.
        """
        for level, line in self._notes:
            log.log(level, "%s", line)
        session_of_job = connected(
            self.inventory, self.cancel, self.metrics, self.display, self._devices
        )
        with session_of_job as session, ExitStack() as stack:
            if self.job.tensorboard:
                self.stream.add(stack.enter_context(EventFiles(folder.path / FOLDER)).consume)
            self._cut(session)
            if self.resumed is not None:
                done = [fit.epochs_done for fit in self.report.fits]
                self.stream.emit(events.Restored(*[*done, 0, 0][:2]))
            placed = self._placed(session, folder)
            mode = placed.mode
            for line in opening_lines(
                self.job,
                self.network,
                session,
                cut=self.report.slots,
                arithmetic=self.report.arithmetic,
                on=self._devices,
            ):
                self.display.say(line)
            self.report.same_bits = reproducible(self.job, session.processors())
            self.report.wire.read = session.server_traffic
            self._totals = mode.shards.totals
            self._memories = mode.memories
            self._count_updates()
            with BusyMeter(self.inventory, session.tasks, session.computing) as self.report.busy:
                used = self._trained(placed, folder)
            if not self.report.fits[0].scheduled:
                return
            self.report.used = used
            mode.shards.reset(used.vector)
            # Before the test: whatever happens there, the training was not for nothing.
            dataset = self.dataset
            store(
                folder.path / "model",
                self.network,
                used.vector,
                self.standardization,
                dataset.labels,
                dataset.sha256,
                dataset.signals,
            )
            export_app(self.network, used.vector, folder.path / "model")
            self._test(placed.evaluator, used)

    def _placed(self, session: Session | Solo, folder: RunFolder) -> Placed:
        """The parameters on their places, every function traced, and the workers in the cluster."""
        job = self.job
        if self.resumption:
            state = self.resumption.state
        else:
            state = VectorState(self._initial(self.train_rows))
        calibration = latest_calibration(Path(self.inventory.runs), self.inventory.cluster)
        self.stream.emit(events.SpeedsRead(calibration or {}))
        speeds = Speeds(speeds_of(calibration))
        in_workers = job.facts.parameters == "workers"
        saboteur, self.report.chaos = sabotage(
            self.chaos,
            folder.path,
            len(session.places),
            self.stream.emit,
            workers_hold_parameters=in_workers,
        )

        setup = Setup(
            job,
            self.network,
            WorkerWindows(self.dataset),
            state,
            {},
            speeds,
            weights=self.weights,
            updates_an_epoch=Plan.of_job(job, self.train_rows).per_epoch,
        )
        join = partial(
            session.dispatch, job.deadline_seconds, saboteur, workers_hold_parameters=in_workers
        )
        return place(session, setup, self._devices, self.display, join)

    def _trained(self, placed: Placed, folder: RunFolder) -> Fit:
        """The fit to be used, with checkpoints on the way."""
        mode = placed.mode
        keeper = RunKeeper(
            folder.path,
            self.job,
            self.dataset.sha256,
            mode.shards,
            self._counted,
            self.report.fits,
            self.report.wire,
            self.stream.emit,
        )
        with keeper:
            trainer = Trainer(
                placed.runner,
                mode,
                self.job,
                self.cancel,
                self.stream.emit,
                self.report.wire,
                keeper,
                objective=self.network.objective,
            )
            trainer.hold = Hold.of(self.chaos, self.report.chaos)
            try:
                used = self._fits(trainer, placed.evaluator, mode.shards)
            finally:
                if not isinstance(
                    sys.exception(), ParameterServerLost
                ):  # one that is lost is asked no more
                    with suppress(ParameterServerLost):
                        self.report.counts = self._count_updates()
            if self.cancel.asked and trainer.consistent:
                keeper.keep()
        return used

    def _test(self, evaluator: Evaluator, used: Fit) -> None:
        """Test a cancelled run too, which makes a result, but only while the person waits."""
        evaluation = run_test_stage(
            evaluator, self.dataset, self.standardization, self.stream.emit, self.cancel.overdue
        )
        if evaluation.examples < self.dataset.test_windows:
            self.display.say("test: interrupted, no figures; run `fab job evaluate`")
            return
        self.report.final = evaluation.figures
        self.report.by_group = describe_groups(evaluation.of_groups, self.dataset.held_out.groups)
        self.report.wrong = wrong_stretches(evaluation.rows, evaluation.named, self.dataset)
        self.report.confusion = evaluation.confusion
        self.report.precision_recall = evaluation.describe_curves(self.dataset.labels)
        if evaluation.figures is not None:
            self.stream.emit(figures_computed("test", evaluation, self.dataset.labels, used.epoch))
            say_groups(evaluation.of_groups, self.dataset, self.display)

    def _cut(self, session: Session | Solo) -> None:
        """Set the number of slots: the user's, the run's, or a suitable one."""
        begun = None if self.resumption is None else self.resumption.slots
        slots = slots_of(self.job, session, len(self._devices), begun)
        self.report.slots = slots
        if idle := without_part(self.job.mode, slots.number, session.workers):
            log.warning("%s", idle)
        self.job = self.job.cut_into(slots.number)
        self.stream.emit(events.BatchesCut(slots.number))

    def _count_updates(self) -> Counts:
        counts = self._counted()
        self.stream.emit(events.UpdatesCounted(**shared(events.UpdatesCounted, counts)))
        return counts

    def _counted(self) -> Counts:
        """The counts of the whole surviving history, what came before the checkpoint included."""
        before = self.report.before
        totals = vars(self._totals()).items()
        return replace(
            before,
            **{name: count + getattr(before, name) for name, count in totals},
            elapsed_seconds=self.elapsed_seconds(),
            memories_lost=self._memories.lost + before.memories_lost,
        )

    def complete(self) -> bool:
        """Return whether every due epoch was trained, of a refit too, and the model tested."""
        return self.report.is_complete(self.job, validated=bool(len(self.validation_rows)))

    def elapsed_seconds(self) -> float:
        """Return the time since the run began, without the pauses between coordinators."""
        return self.report.before.elapsed_seconds + super().elapsed_seconds()

    def result(self) -> dict[str, Any]:
        """Return the result so far."""
        return {**super().result(), **self.report.describe()}

    def _fits(self, trainer: Trainer, evaluator: Evaluator, shards: Any) -> Fit:
        """The fit that chooses the epoch, and the refit if one is asked for; the one to be used."""
        fits = self.report.fits
        if not fits:
            fits.append(Fit(vector=shards.read()))
        chosen = fits[0]
        if len(fits) == 1:
            if len(self.validation_rows):
                validate = partial(self._validate, evaluator, chosen)
            else:
                validate = None
            self._fit(trainer, "train", chosen, self.train_rows, validate)
        if not self.job.refit or not len(self.validation_rows) or self.cancel.asked:
            return chosen
        every_row = np.arange(self.dataset.train_windows, dtype=np.int32)
        before = self.standardization
        self.standardization = standardization_for(self.before, self.dataset, every_row)
        if len(fits) == 1:
            initial = self._initial(every_row)
            shards.reset(initial)
            done = chosen.epochs_done * Plan.of_job(self.job, self.train_rows).per_epoch
            fits.append(Fit(vector=initial, first_id=chosen.first_id + done))
        refit = fits[1]
        due = epochs_of_refit(self.job, chosen)
        self._fit(trainer, "refit", refit, every_row, None, until=due)
        if refit.epochs_done < due:
            # A refit that was cut short is a worse model than the finished one it was to replace.
            self.standardization = before
            return chosen
        self.report.refitted = True
        return refit

    def _initial(self, rows: Rows | Any) -> Vector:
        """Return what a fit on these rows begins with; the standardization is theirs already."""
        initial = self.network.initial(self.job.seed)
        if self.before is not None:
            return with_parameters_of(initial, self.network, self.before, self.dataset.labels)
        blocks = self.standardization.blocks(self.dataset, rows)
        return self.network.measured(initial, self.standardization.packed(), blocks)

    def _fit(
        self,
        trainer: Trainer,
        stage: str,
        fit: Fit,
        rows: Any,
        validate: Callable[[], Figures | None] | None,
        until: int | None = None,
    ) -> None:
        plan = Plan.of_job(self.job, rows, until)
        self.stream.emit(events.StageBegan(stage, plan.updates, "updates"))
        try:
            trainer.fit(stage, fit, plan, self.standardization, validate, self._count_updates)
        except DivergedError as problem:
            self.stream.emit(events.Diverged(str(problem)))
            raise

    def _validate(self, evaluator: Evaluator, fit: Fit) -> Figures | None:
        """Figures of the parameters as they are on the held-out people."""
        self.stream.emit(events.Validating(True))
        evaluation = evaluator(
            self.validation_rows, self.standardization, stop=lambda: self.cancel.asked
        )
        if evaluation.figures is not None and not self.cancel.asked:
            epoch = fit.cursor.epoch + 1
            self.stream.emit(figures_computed("validation", evaluation, self.dataset.labels, epoch))
        self.stream.emit(events.Validating(False))
        return evaluation.figures
