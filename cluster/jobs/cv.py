"""The job `cv`: cross-validation of a recipe over the training people, fold by fold.

A fold holds whole groups out. Everything happens on the training part of the prepared data alone:
the arrays that the graphs map end where the test set begins. A fold that is done is in `cv.json`,
and no later coordinator of the run trains it again; the one that was in training resumes from its
checkpoint.
"""

import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cluster.jobs import checkpointing
from cluster.jobs.busy import BusyMeter
from cluster.jobs.checkpointing import Counts, Resumption, settings_of
from cluster.jobs.cv_record import NAME, CvRecord, FoldScore, key_of, names_of, score_of_fold
from cluster.jobs.fit import Fit, Plan
from cluster.jobs.lifecycle import JobContext
from cluster.jobs.roles import WireMeter
from cluster.jobs.run_folder import RunFolder
from cluster.jobs.session import Session, Solo
from cluster.jobs.sources import load_dataset
from cluster.jobs.train_result import digest_of
from cluster.jobs.training_job import Placed, TrainingJob
from core.consistency import Speeds
from core.data.dataset import CLASSIFICATION
from core.data.split import Fold, folds_of
from core.ground.errors import UsageError
from core.ground.registry import either
from core.inventory.extensions import CODECS
from core.status.events import EpochEnded, Event, Noted, Planned, StageBegan
from ps_node.shard import VectorState
from worker_node.recordings import LossWeights, Standardization

FOLDS = "folds"
"""Below a run: the checkpoints of the fold in training."""


class CrossValidationRun(TrainingJob):
    """One run of the job."""

    name = "cv"

    def __init__(self, context: JobContext) -> None:
        """Raises UsageError for faults to inject."""
        super().__init__(context)
        if self.chaos is not None:
            raise UsageError("--chaos: strikes a training; `fab job cv` takes none")
        if self.job.from_run is not None:
            raise UsageError(
                "jobs.train.from_run: that run saw people whom a fold holds out: set it to null"
            )
        self.record: CvRecord | None = None
        self._run = Path()
        """The run's folder, once it is there."""

    def prepare(self) -> None:
        """Prepare the recordings, draw the folds, refuse what cannot work.

        Raises ClusterError, Cancelled.
        """
        job = self.job
        if job.early_stopping is not None:
            raise UsageError(
                "jobs.train.early_stopping: cross-validation holds out each fold to judge the last"
                " epoch, not to choose one: set it to null, and epochs to a number"
            )
        if job.class_weights == "balanced":
            raise UsageError(
                "jobs.train.class_weights: balanced counts the training windows, which differ from"
                " fold to fold: name the weight of each label"
            )
        if CODECS[job.codec.name].keeps_back:
            memoryless = either(name for name, codec in CODECS.items() if not codec.keeps_back)
            raise UsageError(
                f"jobs.train.codec: {job.codec.name} keeps on each worker what it did not send, so"
                f" that a fold would get what the one before it held out: take {memoryless}"
            )
        if job.facts.needs_roles() and job.facts.parameters == "workers":
            raise UsageError(
                f"jobs.train.mode: {job.mode} holds the parameters on the workers, where"
                " cross-validation does not place them: take sync, which ends with the same bits"
            )
        app = self.open_app()
        whole = load_dataset(self.inventory, self.display, self.cancel, self.stream.emit, app)
        dataset = whole.training_part()
        self.train_on(dataset)
        one_each = dataset.task == CLASSIFICATION and not dataset.targets.shape
        self._groups = dataset.subjects()
        settings = self.inventory.jobs.cv
        self.folds = folds_of(
            self._groups,
            settings.folds,
            settings.split_seed,
            dataset.classes() if one_each else None,
        )
        for fold in self.folds:
            self._plan(fold, settings.seeds[0])
        self.build(app)
        self.choose_arithmetic()
        if self.resumed is not None:
            self.record = self._opened(self.resumed)
        self.cancel.check()

    def _opened(self, run: Path) -> CvRecord:
        """The record of the run.

        The key leaves out where the data lies: its content is compared.
        """
        groups = len(np.unique(self._groups))
        key = key_of(self.dataset.sha256, groups, self.inventory, settings_of(self.job))
        planned = len(self.folds) * len(self.inventory.jobs.cv.seeds)
        return CvRecord.load(run / NAME, key, planned)

    def run(self, folder: RunFolder) -> None:
        """Train and judge every fold that is not done.

        Raises ClusterError; when cancelled the folds so far stay.
        """
        record = self.record = self.record or self._opened(folder.path)
        self._run = folder.path
        if not record.complete:
            self._say_folds(record)
            with (
                self.connected() as session,
                BusyMeter(self.inventory, session.tasks, session.computing) as self.report.busy,
            ):
                self._all(session, record)
        if record.complete:
            shutil.rmtree(self._run / FOLDS, ignore_errors=True)
        for line in record.table():
            self.display.say(line)

    def _say_folds(self, record: CvRecord) -> None:
        if self.folds[0].groups:
            what = f"{len(np.unique(self._groups))} groups"
        else:
            what = "rows, whose groups are not known,"
        seeds = self.inventory.jobs.cv.seeds
        plan = f"cv: {what} in {len(self.folds)} folds, {len(seeds)} seed{'s' * (len(seeds) > 1)}"
        if record.scores:
            plan += f", {len(record.scores)} of {record.planned} trainings done"
        self.display.say(plan)
        if not self.folds[0].groups:
            self.display.say(
                "    rows that overlap lie in several folds: the figures look better than they are"
            )

    def _all(self, session: Session | Solo, record: CvRecord) -> None:
        due = [
            (fold, seed)
            for seed in self.inventory.jobs.cv.seeds
            for fold in self.folds
            if not record.has(seed, fold.number)
        ]
        resumption = self._interrupted(*due[0])
        self.cut(session, resumption)
        if resumption is None:
            state = VectorState(self.network.initial(self.job.seed))
        else:
            state = resumption.state
        weights = LossWeights.from_setting(
            self.job.class_weights, self.dataset, self.folds[0].train
        )
        placed = self.place(session, state, weights, Speeds(), 1)
        first_id = 0
        for fold, seed in due:
            self.cancel.check()
            first_id = self._trained(placed, record, fold, seed, first_id, resumption)
            resumption = None  # of the first one alone
            if self.cancel.asked:
                return

    def _checkpoints(self, fold: Fold, seed: int) -> Path:
        return self._run / FOLDS / f"seed-{seed}-fold-{fold.number + 1}"

    def _interrupted(self, fold: Fold, seed: int) -> Resumption | None:
        """Return what the coordinator before left of the fold that it was training.

        Raises UsageError.
        """
        job = self.job.model_copy(update={"seed": seed})
        folder = self._checkpoints(fold, seed)
        resumption, _ = checkpointing.resume(
            folder, job, self.dataset.sha256, self.network.layout.size
        )
        return resumption

    def _trained(
        self,
        placed: Placed,
        record: CvRecord,
        fold: Fold,
        seed: int,
        first_id: int,
        resumption: Resumption | None,
    ) -> int:
        """Train one fold or its rest, record it, and return the next fold's first update."""
        begin = time.monotonic()
        plan = self._plan(fold, seed)
        standardization = Standardization.of_rows(self.dataset, fold.train)
        mode = placed.mode
        if resumption is None:
            vector = self.measured(fold.train, standardization, seed)
            mode.begin_again(vector, seed)
            fit = Fit(vector=vector, first_id=first_id)
        else:
            mode.of_fit(seed)
            fit = resumption.fits[0]
        self.stream.emit(
            Noted("stage", f"fold {fold.number + 1} of {len(self.folds)}, seed {seed}")
        )
        self.stream.emit(StageBegan("train", plan.updates, "updates"))
        checkpoints = self._checkpoints(fold, seed)
        job = self.job.model_copy(update={"seed": seed})
        emit = self._without_epochs(plan)
        with self.trainer(placed, job, checkpoints, [fit], WireMeter(), Counts, emit) as trainer:
            trainer.fit("train", fit, plan, standardization, None, lambda: None)
        following = fit.first_id + plan.updates
        if fit.epochs_done < plan.epochs or self.cancel.asked:
            return following
        mode.shards.reset(fit.vector)  # an average is not what the last update left there
        score = score_of_fold(
            placed.evaluator, fold, self._groups, standardization, lambda: self.cancel.asked
        )
        if score is not None:
            digest = digest_of(fit.vector)
            seconds = time.monotonic() - begin
            self._keep(record, replace(score, seed=seed, parameters_sha256=digest, seconds=seconds))
            shutil.rmtree(checkpoints, ignore_errors=True)
        return following

    def _keep(self, record: CvRecord, score: FoldScore) -> None:
        record.add(score)
        name = record.headline
        if score.groups:
            held_out = f"{names_of(score.groups)}, "
        else:
            held_out = ""
        line = (
            f"fold {score.fold + 1} of {len(self.folds)}, seed {score.seed}: {name}"
            f" {score.figures[name]:.4f} on {held_out}{score.windows:,} {self.unit},"
            f" {score.seconds:.0f} s"
        )
        self.display.say(line)
        self.stream.emit(Noted("stage", line))

    def _plan(self, fold: Fold, seed: int) -> Plan:
        return Plan(self.job.model_copy(update={"seed": seed}), fold.train)

    def _without_epochs(self, plan: Plan) -> Any:
        """Return a consumer that passes on what the trainer emits, without the epochs of each fold.

        They would be taken for those of one training.
        """

        def emit(event: Event) -> None:
            if isinstance(event, EpochEnded):
                event = Planned(plan.epochs, event.epoch, event.rate)
            self.stream.emit(event)

        return emit

    def complete(self) -> bool:
        """Whether every fold was trained with every seed."""
        return self.record is not None and self.record.complete

    def result(self) -> dict[str, Any]:
        """Return the result so far; `cv.json` beside it has every fold."""
        record = self.record
        training = self.report.describe()
        return {
            **super().result(),
            **{name: training[name] for name in ("mode", "dataset", "model", "settings", "busy")},
            "cv": self.inventory.jobs.cv.model_dump(mode="json"),
            "trainings": {
                "planned": record.planned if record else None,
                "done": len(record.scores) if record else 0,
            },
            "summary": record.summary() if record and record.scores else None,
        }
