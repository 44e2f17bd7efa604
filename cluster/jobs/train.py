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
from cluster.jobs.checkpointing import Counts, Resumption
from cluster.jobs.evaluation import (
    Evaluator,
    describe_test,
    figures_computed,
    run_test_stage,
    say_groups,
)
from cluster.jobs.fit import DivergedError, Fit, Plan, Rows, epochs_of_refit
from cluster.jobs.job_network import model_to_continue, standardization_for, with_parameters_of
from cluster.jobs.lifecycle import JobContext
from cluster.jobs.run_folder import RunFolder
from cluster.jobs.run_logs import FOLDER, EventFiles, Hold, sabotage
from cluster.jobs.session import Session, Solo
from cluster.jobs.sources import TrainRows, load_dataset
from cluster.jobs.train_result import StoredModel, export_app, store
from cluster.jobs.training import Trainer
from cluster.jobs.training_job import Placed, TrainingJob, opening_lines, reproducible
from core.consistency import Speeds
from core.engine.changes import ParameterServerLost
from core.ground.errors import UsageError
from core.parameters import Vector
from core.status import events
from core.status.parts import Figures, shared
from ps_node.shard import VectorState
from worker_node.recordings import LossWeights

log = logging.getLogger(__name__)


class TrainRun(TrainingJob):
    """One run of the job."""

    name = "train"

    def __init__(self, context: JobContext) -> None:
        super().__init__(context)
        self.resumption: Resumption | None = None
        self.validation_rows: NDArray[np.integer] = np.empty(0, np.int32)
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
        app = self.open_app()
        self.train_on(
            load_dataset(self.inventory, self.display, self.cancel, self.stream.emit, app)
        )
        rows = TrainRows.of(self.dataset, job)
        self.train_rows = rows.train
        self.validation_rows = rows.validation
        self._notes += [(logging.WARNING, line) for line in rows.notes]
        Plan(self.job, self.train_rows)
        self.build(app)
        self.before = model_to_continue(self.inventory, self.network, self.dataset)
        if self.resumed is not None:
            self.resumption = self._resumption(self.resumed)
        if self.resumption is not None:
            self.job = self.job.computed_by(self.resumption.arithmetic)
        self.choose_arithmetic()
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
        with self.connected() as session, ExitStack() as stack:
            if self.job.tensorboard:
                self.stream.add(stack.enter_context(EventFiles(folder.path / FOLDER)).consume)
            self.cut(session, self.resumption)
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
                on=self.devices,
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
            model = StoredModel(
                self.network,
                used.vector,
                self.standardization,
                dataset.labels,
                dataset.sha256,
                dataset.signals,
            )
            store(folder.path / "model", model)
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
        saboteur, self.report.chaos = sabotage(
            self.chaos,
            folder.path,
            len(session.places),
            self.stream.emit,
            workers_hold_parameters=job.facts.parameters == "workers",
        )
        per_epoch = Plan(job, self.train_rows).per_epoch
        return self.place(session, state, self.weights, speeds, per_epoch, saboteur)

    def _trained(self, placed: Placed, folder: RunFolder) -> Fit:
        """The fit to be used, with checkpoints on the way."""
        report = self.report
        with self.trainer(
            placed,
            self.job,
            folder.path,
            report.fits,
            report.wire,
            self._counted,
            self.stream.emit,
        ) as trainer:
            trainer.hold = Hold.of(self.chaos, report.chaos)
            try:
                return self._fits(trainer, placed.evaluator, placed.mode.shards)
            finally:
                if not isinstance(
                    sys.exception(), ParameterServerLost
                ):  # one that is lost is asked no more
                    with suppress(ParameterServerLost):
                        self.report.counts = self._count_updates()

    def _test(self, evaluator: Evaluator, used: Fit) -> None:
        """Test a cancelled run too, which makes a result, but only while the person waits."""
        evaluation = run_test_stage(
            evaluator, self.dataset, self.standardization, self.stream.emit, self.cancel.overdue
        )
        if evaluation.examples < self.dataset.test_windows:
            self.display.say("test: interrupted, no figures; run `fab job evaluate`")
            return
        self.report.test = describe_test(evaluation, self.dataset)
        if evaluation.figures is not None:
            self.stream.emit(figures_computed("test", evaluation, self.dataset.labels, used.epoch))
            say_groups(evaluation.of_groups, self.dataset, self.display)

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
            done = chosen.epochs_done * Plan(self.job, self.train_rows).per_epoch
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
        if self.before is None:
            return self.measured(rows, self.standardization, self.job.seed)
        initial = self.network.initial(self.job.seed)
        return with_parameters_of(initial, self.network, self.before, self.dataset.labels)

    def _fit(
        self,
        trainer: Trainer,
        stage: str,
        fit: Fit,
        rows: Any,
        validate: Callable[[], Figures | None] | None,
        until: int | None = None,
    ) -> None:
        plan = Plan(self.job, rows, until)
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
