"""The job `cv`: cross-validation of a recipe over the training people, whole groups held out, fold by fold.

Everything happens on the training part of the prepared data alone: the arrays that the graphs map end where the test
set begins. A fold that is done is in `cv.json`, and no later coordinator of the run trains it again; the one that was
in training resumes from its checkpoint.
"""

import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cluster.consistency.policy import Speeds
from cluster.data import Dataset
from cluster.data.dataset import CLASSIFICATION
from cluster.data.folds import Fold, folds_of
from cluster.engine.chaos import ChaosPlan
from cluster.engine.devices import HOST, devices_here
from cluster.errors import UsageError
from cluster.inventory import Inventory
from cluster.inventory.extensions import CODECS
from cluster.inventory.micro_batches import auto_micro_batches
from cluster.jobs import checkpointing, evaluate
from cluster.jobs.busy import BusyMeter
from cluster.jobs.cancel import Cancel
from cluster.jobs.checkpointing import Counts, Resumption, RunKeeper, settings_of
from cluster.jobs.cv_record import NAME, CvRecord, FoldScore, GroupScore, names_of
from cluster.jobs.evaluate import Evaluation, Evaluator
from cluster.jobs.fit import Fit, Plan
from cluster.jobs.job_metrics import TrainingMetrics
from cluster.jobs.lifecycle import Job
from cluster.jobs.model_of_job import imported_app, network_for
from cluster.jobs.modes.mode import Mode, Setup, mode_of, wire_codecs
from cluster.jobs.progress import Display
from cluster.jobs.roles import WireMeter
from cluster.jobs.run_folder import RunFolder
from cluster.jobs.session import Runner, Session, Solo, connected
from cluster.jobs.sources import load_dataset
from cluster.jobs.teachers import MODELS, Teachers, model_of_fold
from cluster.jobs.train_result import describe_dataset, digest_of, store
from cluster.jobs.trained_on import TrainedOn
from cluster.jobs.training import Trainer
from cluster.models.network import Network
from cluster.parameters import Vector
from cluster.registry import either
from cluster.status.events import BatchesCut, EpochEnded, Event, Noted, Planned, StageBegan
from ps_node.shard import VectorState
from worker_node.recordings import Standardization, WorkerWindows
from worker_node.weights import LossWeights

NOT_OF_A_FOLD = ("seed", "validation_subjects", "refit", "early_stopping", "checkpoint")
"""Keys of `jobs.train` that mean nothing here: the folds and the seeds of `jobs.cv` take their place."""


FOLDS = "folds"
"""Below a run: the checkpoints of the fold in training."""


@dataclass(frozen=True)
class Bench:
    """What trains and judges every fold: the functions are traced once."""

    runner: Runner
    mode: Mode
    judge: Evaluator


class CrossValidationRun(Job):
    """One run of the job."""

    name = "cv"

    def __init__(
        self, inventory: Inventory, display: Display, cancel: Cancel, resumed: Path | None = None,
        chaos: ChaosPlan | None = None,
    ) -> None:  # fmt: skip
        """`resumed`: the folder of the run to resume. Raises UsageError for `chaos`."""
        job = inventory.jobs.train
        super().__init__(inventory, display, cancel, chaos, job.mode, job.model.name)
        if chaos is not None:
            raise UsageError("--chaos: strikes a training; `fab job cv` takes none")
        self.job, self.resumed = job, resumed
        pull, push = wire_codecs(job.codec)
        of_training = TrainingMetrics(self.metrics.registry, pull.name, push.name, job.checkpoint.every_seconds)
        self.stream.add(self.metrics.metered(of_training.consume))
        self.dataset: Dataset | None = None
        self.network: Network | None = None
        self.record: CvRecord | None = None
        self.teachers: Teachers | None = None
        self._busy: BusyMeter | None = None
        self._devices: tuple[str, ...] = (HOST,)
        self._teacher: dict[tuple[int, int], int] = {}
        """The place of a fold's teacher, by seed and fold."""
        self._run = Path()
        """The run's folder, once it is there."""

    def prepare(self) -> None:
        """Prepare the recordings, draw the folds, refuse what cannot work. Raises ClusterError, Cancelled."""
        job = self.job
        if job.early_stopping is not None:
            raise UsageError(
                "jobs.train.early_stopping: cross-validation holds out each fold to judge the last epoch, not to "
                "choose one: set it to null, and epochs to a number"
            )
        if job.class_weights == "balanced":
            raise UsageError(
                "jobs.train.class_weights: balanced counts the training windows, which differ from fold to fold: name "
                "the weight of each label"
            )
        if CODECS[job.codec.name].keeps_back:
            others = either(name for name, found in CODECS.items() if not found.keeps_back)
            raise UsageError(
                f"jobs.train.codec: {job.codec.name} keeps on each worker what it did not send, so that a fold would "
                f"get what the one before it held out: take {others}"
            )
        if job.facts.needs_roles() and job.facts.parameters == "workers":
            raise UsageError(
                f"jobs.train.mode: {job.mode} holds the parameters on the workers, where cross-validation does not "
                "place them: take sync, which ends with the same bits"
            )
        with self.cancel.at_once():
            if not job.facts.needs_roles():
                self._devices = devices_here(job.device, all_of_them=job.facts.spans_devices())
            app = imported_app(job, self.app)
        whole = load_dataset(self.inventory, self.display, self.cancel, self.stream.emit, app)
        dataset = self.dataset = whole.training_part()
        self.unit, self.task_type = dataset.unit, dataset.task
        one_each = dataset.task == CLASSIFICATION and not dataset.targets.shape
        self._groups = dataset.subjects()
        settings = self.inventory.jobs.cv
        self.folds = folds_of(
            self._groups, settings.folds, settings.split_seed, dataset.classes() if one_each else None
        )  # fmt: skip
        for fold in self.folds:
            self._plan(fold, settings.seeds[0])
        with self.cancel.at_once():
            self.network = network_for(job, dataset, app)
        try:
            self.network.layout.shards(len(self.inventory.of_role("ps")) if job.facts.needs_roles() else 1)
        except ValueError as problem:
            raise UsageError(f"nodes: {problem}") from None
        if job.distill is not None:
            self.teachers = Teachers(job.distill.run, Path(self.inventory.runs), dataset, self.resumed)
            for seed in settings.seeds:
                for fold in self.folds:
                    self._teacher[seed, fold.number] = self.teachers.place_for(fold.train, seed)
        if self.resumed is not None:
            self._open(self.resumed)
        self.cancel.check()

    def _open(self, run: Path) -> None:
        """The record of the run. The key leaves out where the data lies: its content is compared."""
        assert self.dataset is not None
        settings = {key: value for key, value in settings_of(self.job).items() if key not in NOT_OF_A_FOLD}
        key = {
            "dataset_sha256": self.dataset.sha256,
            "groups": len(np.unique(self._groups)),
            **self.inventory.jobs.cv.model_dump(mode="json"),
            **{f"train.{name}": value for name, value in settings.items()},
        }
        planned = len(self.folds) * len(self.inventory.jobs.cv.seeds)
        self.record = CvRecord.opened(run / NAME, key, planned)

    def run(self, folder: RunFolder) -> None:
        """Train and judge every fold that is not done. Raises ClusterError; when cancelled the folds so far stay."""
        if self.record is None:
            self._open(folder.path)
        assert self.record is not None
        self._run = folder.path
        if self.teachers is not None:
            self.teachers.keep(folder.path)
        if not self.record.complete:
            self._say_folds()
            with (
                connected(self.inventory, self.cancel, self.metrics, self.display, self._devices) as session,
                BusyMeter(self.inventory, session.tasks, session.computing) as self._busy,
            ):
                self._all(session)
        if self.record.complete:
            shutil.rmtree(self._run / FOLDS, ignore_errors=True)
        for line in self.record.table():
            self.display.say(line)

    def _say_folds(self) -> None:
        assert self.record is not None
        what = f"{len(np.unique(self._groups))} groups" if self.folds[0].groups else "rows, whose groups are not known,"
        seeds, done = self.inventory.jobs.cv.seeds, len(self.record.scores)
        words = f"cv: {what} in {len(self.folds)} folds, {len(seeds)} seed{'s' * (len(seeds) > 1)}"
        self.display.say(f"{words}, {done} of {self.record.planned} trainings done" if done else words)
        if not self.folds[0].groups:
            self.display.say("    rows that overlap lie in several folds: the figures look better than they are")

    def _all(self, session: Session | Solo) -> None:
        assert self.dataset is not None
        assert self.network is not None
        assert self.record is not None
        seeds, done = self.inventory.jobs.cv.seeds, self.record.has
        due = [(fold, seed) for seed in seeds for fold in self.folds if not done(seed, fold.number)]
        resumption = self._interrupted(*due[0])
        if not isinstance(self.job.micro_batches, int):
            cut = auto_micro_batches(self.job.mode, self.job.batch_size, session.workers, session.worker_cores())
            self.job = self.job.cut_into(cut.number if resumption is None else resumption.micro_batches)
        self.stream.emit(BatchesCut(self.job.pieces))
        windows = WorkerWindows(self.dataset)
        state = VectorState(self.network.initial(self.job.seed)) if resumption is None else resumption.state
        weights = LossWeights.of(self.job.class_weights, self.dataset, self.folds[0].train)
        places = dict(enumerate(session.places))
        with self.display.busy("placing the parameters, tracing the network"):
            taught_by = () if self.teachers is None else self.teachers.taught_by
            mode = mode_of(Setup(
                self.job, self.network, windows, state, places, session.workers, Speeds(), weights=weights,
                devices_that_compute=self._devices, teachers=taught_by,
            ))  # fmt: skip
            evaluation = Evaluation(self.network, windows, mode.shards, compiled=self.job.compiled)
            functions = {**mode.functions, evaluate.FUNCTION: evaluation.function}
        runner = session.dispatch(functions, self.job.deadline_seconds)
        bench, first_id = Bench(runner, mode, Evaluator(runner, evaluation)), 0
        for fold, seed in due:
            self.cancel.check()
            first_id = self._trained(bench, fold, seed, first_id, resumption)
            resumption = None  # of the first one alone
            if self.cancel.asked:
                return

    def _checkpoints(self, fold: Fold, seed: int) -> Path:
        return self._run / FOLDS / model_of_fold(seed, fold.number)

    def _interrupted(self, fold: Fold, seed: int) -> Resumption | None:
        """What the coordinator before this one left of the fold that it was training. Raises UsageError."""
        assert self.dataset is not None
        assert self.network is not None
        job = self.job.model_copy(update={"seed": seed})
        folder = self._checkpoints(fold, seed)
        found, _ = checkpointing.resume(folder, job, self.dataset.sha256, self.network.layout.size)
        return found

    def _trained(self, bench: Bench, fold: Fold, seed: int, first_id: int, resumption: Resumption | None) -> int:
        """Train one fold, or the rest of it, and record it; the id of the next one's first update."""
        assert self.dataset is not None
        assert self.network is not None
        assert self.record is not None
        begin = time.monotonic()
        plan = self._plan(fold, seed)
        standardization = Standardization.of(self.dataset, fold.train)
        mode, teacher = bench.mode, self._teacher.get((seed, fold.number), 0)
        if resumption is None:
            blocks = standardization.blocks(self.dataset, fold.train)
            vector = self.network.measured(self.network.initial(seed), standardization.packed(), blocks)
            mode.begin_again(vector, seed, teacher)
            fit = Fit(vector=vector, first_id=first_id)
        else:
            mode.of_fit(seed, teacher)
            fit = resumption.fits[0]
        self.stream.emit(Noted("stage", f"fold {fold.number + 1} of {len(self.folds)}, seed {seed}"))
        self.stream.emit(StageBegan("train", plan.updates, "updates"))
        kept, wire = self._checkpoints(fold, seed), WireMeter()
        job = self.job.model_copy(update={"seed": seed})
        with RunKeeper(kept, job, self.dataset.sha256, mode.shards, Counts, [fit], wire, self.stream.emit) as keeper:
            trainer = Trainer(
                bench.runner, mode, job, self.cancel, self._without_epochs(plan), wire, keeper,
                objective=self.network.objective,
            )  # fmt: skip
            trainer.fit("train", fit, plan, standardization, None, lambda: None)
            if self.cancel.asked and trainer.consistent:
                keeper.keep()
        following = fit.first_id + plan.updates
        if fit.epochs_done < plan.epochs or self.cancel.asked:
            return following
        mode.shards.reset(fit.vector)  # an average is not what the last update left there
        score = self._judged(bench.judge, fold, seed, standardization, fit.vector)
        if score is not None:
            self._keep_model(fold, seed, standardization, fit.vector)
            self._keep(replace(score, seconds=time.monotonic() - begin))
            shutil.rmtree(kept, ignore_errors=True)
        return following

    def _keep_model(self, fold: Fold, seed: int, standardization: Standardization, vector: Vector) -> None:
        """Before the fold counts as done: a fold without its model would be trained no more. Raises ClusterError."""
        if not self.inventory.jobs.cv.keep_models:
            return
        assert self.dataset is not None
        assert self.network is not None
        dataset = self.dataset
        folder = self._run / MODELS
        folder.mkdir(exist_ok=True)
        store(
            folder / model_of_fold(seed, fold.number), self.network, vector, standardization, dataset.labels,
            dataset.sha256, TrainedOn.of(dataset, fold.train),
        )  # fmt: skip

    def _keep(self, score: FoldScore) -> None:
        assert self.record is not None
        self.record.add(score)
        name, value = self.record.headline, score.figures[self.record.headline]
        words = f"fold {score.fold + 1} of {len(self.folds)}, seed {score.seed}: {name} {value:.4f}"
        held_out = f"{names_of(score.groups)}, " if score.groups else ""
        words += f" on {held_out}{score.windows:,} {self.unit}, {score.seconds:.0f} s"
        self.display.say(words)
        self.stream.emit(Noted("stage", words))

    def _judged(
        self, judge: Evaluator, fold: Fold, seed: int, standardization: Standardization, vector: Vector
    ) -> FoldScore | None:
        """The figures over the fold's held-out windows, of each group by itself too; None when cancelled meanwhile."""

        def stop() -> bool:
            return self.cancel.asked

        of_group = {group: fold.held_out[self._groups[fold.held_out] == group] for group in fold.groups}
        found = {group: judge(rows, standardization, stop=stop) for group, rows in of_group.items()}
        whole = found[fold.groups[0]] if len(found) == 1 else judge(fold.held_out, standardization, stop=stop)
        if self.cancel.asked or whole.figures is None:
            return None
        groups = []
        for group, of in found.items():
            accuracy = None if of.figures is None else of.figures.accuracy
            right = None if accuracy is None else round(accuracy * of.examples)
            groups.append(GroupScore(group, of.examples, right))
        confusion = tuple(tuple(map(int, row)) for row in whole.confusion)
        return FoldScore(
            seed, fold.number, tuple(groups), len(fold.train), whole.examples, whole.figures.describe(), confusion,
            digest_of(vector), 0.0,
        )  # fmt: skip

    def _plan(self, fold: Fold, seed: int) -> Plan:
        job = self.job
        return Plan(
            fold.train.astype(np.int32), job.batch_size, job.epochs, job.replay_worst_batches, seed,
            job.facts.batches(job.mode_options),
        )  # fmt: skip

    def _without_epochs(self, plan: Plan) -> Any:
        """What the trainer emits, without the epochs of each fold, which would be taken for those of one training."""

        def emit(event: Event) -> None:
            if isinstance(event, EpochEnded):
                event = Planned(plan.epochs, event.epoch, event.rate)
            self.stream.emit(event)

        return emit

    def complete(self) -> bool:
        """Whether every fold was trained with every seed."""
        return self.record is not None and self.record.complete

    def result(self) -> dict[str, Any]:
        """What there is so far; `cv.json` beside it has every fold."""
        job, record = self.inventory.jobs.train, self.record
        described: dict[str, Any] = {**job.model.model_dump(), "parameters": None}
        return {
            **super().result(),
            "mode": job.mode,
            "dataset": describe_dataset(self.dataset),
            "model": self.network.describe() if self.network else described,
            "settings": job.model_dump(mode="json", by_alias=True),
            "cv": self.inventory.jobs.cv.model_dump(mode="json"),
            "teachers": [] if self.teachers is None else self.teachers.describe(),
            "busy": None if self._busy is None else self._busy.describe(),
            "trainings": {"planned": record.planned if record else None, "done": len(record.scores) if record else 0},
            "summary": record.summary() if record and record.scores else None,
        }
