"""The job `train`: data, split, fit, choose, refit if asked, one look at the test set, the model."""

from contextlib import suppress
from dataclasses import asdict
from typing import Any

import numpy as np

from cluster.data import split_validation
from cluster.engine.lost import ParameterServerLost
from cluster.engine.optimizers import Adam, MomentumSGD, Optimizer
from cluster.engine.shards import ParameterShards
from cluster.errors import UsageError
from cluster.inventory import Inventory
from cluster.inventory.optimizers import Adam as AdamConfig
from cluster.inventory.optimizers import AdamW as AdamWConfig
from cluster.inventory.optimizers import OptimizerConfig
from cluster.jobs import evaluation, training
from cluster.jobs.batches import Plan, Rows
from cluster.jobs.cancel import Cancel
from cluster.jobs.evaluation import Evaluator
from cluster.jobs.model_store import store
from cluster.jobs.progress import Display
from cluster.jobs.recordings import Standardization, WorkerWindows
from cluster.jobs.run_folder import RunFolder
from cluster.jobs.session import Session
from cluster.jobs.sources import load_dataset
from cluster.jobs.train_result import TrainReport, describe_figures
from cluster.jobs.training import EpochReport, Fit, Trainer
from cluster.jobs.training_metrics import TrainingMetrics
from cluster.models import build


def optimizer_of(config: OptimizerConfig) -> Optimizer:
    """The engine's optimizer that an inventory's `optimizer` entry asks for."""
    match config:
        case AdamWConfig():
            return Adam(config.beta_1, config.beta_2, config.epsilon, config.weight_decay)
        case AdamConfig():
            return Adam(config.beta_1, config.beta_2, config.epsilon)
        case _:
            return MomentumSGD(config.momentum)


class TrainRun:
    """One run of the job."""

    name = "train"

    def __init__(self, inventory: Inventory, display: Display, cancel: Cancel) -> None:
        self.inventory, self.job = inventory, inventory.jobs.train
        self.display, self.cancel = display, cancel
        self.report = TrainReport(inventory)

    def prepare(self) -> None:
        """Prepare the recordings, build the network, refuse what cannot work. Raises ClusterError, Cancelled."""
        job = self.job
        self.dataset = self.report.dataset = load_dataset(self.inventory, self.display, self.cancel)
        known = slice(self.dataset.train_windows)
        self.train_rows, self.validation_rows = split_validation(
            self.dataset.subjects()[known], job.validation_subjects, job.seed, self.dataset.classes()[known]
        )
        self._plan(self.train_rows)
        self.network = self.report.network = build(
            job.model,
            window_steps=self.dataset.window_steps,
            channels=self.dataset.channels,
            classes=len(self.dataset.labels),
            keep_probability=job.keep_probability,
        )
        try:
            self.network.layout.shards(len(self.inventory.of_role("ps")))
        except ValueError as problem:
            raise UsageError(f"nodes: {problem}") from None
        self.standardization = Standardization.of(self.dataset, self.train_rows)
        self.cancel.check()

    def run(self, folder: RunFolder) -> None:
        """Train, choose, test, store. Raises ClusterError; when cancelled it ends with what there is by then."""
        job, dataset, network = self.job, self.dataset, self.network
        with Session(self.inventory, self.cancel) as session:
            shards = ParameterShards(
                network.layout, network.initial(job.seed), optimizer_of(job.optimizer), len(session.servers)
            )
            windows = WorkerWindows(dataset)
            functions = {
                training.FUNCTION: training.traced(job, network, windows, shards),
                evaluation.FUNCTION: evaluation.traced(network, windows, shards),
            }
            dispatcher = session.dispatch(functions, job.deadline_seconds)
            self._say_what(session)
            metrics = TrainingMetrics(session.registry)
            trainer = Trainer(
                session, dispatcher, shards, job, self.cancel, metrics, self.report.wire, classes=len(dataset.labels)
            )
            evaluator = Evaluator(dispatcher, len(dataset.labels))
            try:
                used = self._fits(trainer, evaluator, shards, folder)
            finally:
                with suppress(ParameterServerLost):
                    self.report.totals = shards.totals()
            if not self.report.fits[0].scheduled:
                return
            self.report.used = used
            rows = training.test_rows(dataset.train_windows, dataset.test_windows)
            shards.reset(used.vector)
            # Before the test: whatever happens there, the training was not for nothing.
            store(folder.path / "model", network, used.vector, self.standardization, dataset.labels, dataset.sha256)
            bar = self.display.bar("test", -(-len(rows) // evaluation.CHUNK))
            # A cancelled run is tested too, which makes a result of it, but only while the person still waits.
            final, confusion = evaluator(rows, self.standardization, bar.advance, self.cancel.overdue)
            bar.close()
            if int(confusion.sum()) < len(rows):
                self.display.say("test: broken off, no figures; `fab job evaluate` makes up for it")
                return
            self.report.final, self.report.confusion = final, confusion
            if final is not None:
                metrics.figures("test", final.loss, final.accuracy, final.f1_macro)
                self.display.say(f"test: {final.line()}")

    def complete(self) -> bool:
        """Whether every epoch was trained, of the refit too if one was asked for, and the model tested."""
        used, report = self.report.used, self.report
        refitted = report.refitted or not self.job.refit or not len(self.validation_rows)
        return report.final is not None and used is not None and used.epochs_done == self.job.epochs and refitted

    def result(self) -> dict[str, Any]:
        """What there is so far."""
        return self.report.describe()

    def _fits(self, trainer: Trainer, evaluator: Evaluator, shards: ParameterShards, folder: RunFolder) -> Fit:
        """The fit that chooses the epoch, and the refit if one is asked for; the one to be used."""
        chosen = self._fit(trainer, evaluator, shards, folder, self.train_rows, self.validation_rows, "train")
        if not self.job.refit or not len(self.validation_rows) or self.cancel.asked:
            return chosen
        every_row = np.arange(self.dataset.train_windows, dtype=np.int32)
        before, self.standardization = self.standardization, Standardization.of(self.dataset, every_row)
        shards.reset(self.network.initial(self.job.seed))
        refit = self._fit(trainer, evaluator, shards, folder, every_row, every_row[:0], "refit")
        if refit.epochs_done < self.job.epochs:
            # A refit that was cut short is a worse model than the finished one it was to replace.
            self.standardization = before
            return chosen
        self.report.refitted = True
        return refit

    def _plan(self, rows: Rows | Any) -> Plan:
        job = self.job
        return Plan(rows.astype(np.int32), job.batch_size, job.epochs, job.replay_worst_batches, job.seed)

    def _fit(
        self, trainer: Trainer, evaluator: Evaluator, shards: ParameterShards, folder: RunFolder,
        rows: Any, validation: Any, stage: str,
    ) -> Fit:  # fmt: skip
        plan = self._plan(rows)
        bar = self.display.bar(stage, plan.updates)
        latest: list[str] = [""]

        def advance(_windows: int, loss: float) -> None:
            epoch = min(bar.done // plan.per_epoch + 1, plan.epochs)
            bar.advance(1, f"epoch {epoch}/{plan.epochs}  loss {loss:.2f}{latest[0]}")

        def report(line: EpochReport) -> None:
            validation_accuracy = line.validation.accuracy if line.validation else None
            shown = "" if validation_accuracy is None else f"  validation accuracy {validation_accuracy:.4f}"
            valid = "" if validation_accuracy is None else f"  val. {validation_accuracy:.3f}"
            latest[0] = f"  {line.windows_per_second:,.0f} windows/s{valid}"
            folder.event(stage=stage, **{**asdict(line), "validation": describe_figures(line.validation)})
            self.display.say(
                f"{stage}: epoch {line.epoch:>3}/{plan.epochs}  {line.windows_per_second:>6,.0f} windows/s  "
                f"loss {line.loss:.4f}  accuracy {line.accuracy:.4f}{shown}  {line.seconds_left:.0f} s left"
            )

        fit = Fit(shards.read())
        self.report.fits.append(fit)
        validate = training.evaluator_for(evaluator, validation, self.standardization, self.cancel)
        trainer.fit(fit, plan, self.standardization, validate, report, advance)
        bar.close()
        return fit

    def _say_what(self, session: Session) -> None:
        described = self.network.describe()
        servers, workers = len(session.servers), len(session.workers)
        self.display.say(
            f"model: {described['name']}, {described['parameters']:,} parameters on {servers} parameter "
            f"server{'s' * (servers > 1)}, {workers} worker{'s' * (workers > 1)}, {self.job.mode}, "
            f"batch {self.job.batch_size}"
        )
