"""The job `train`: data, split, fit, choose, refit if asked, one look at the test set, the result."""

import hashlib
import statistics as stats
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from cluster.data import Dataset, split_validation
from cluster.engine.optimizers import Adam, MomentumSGD, Optimizer
from cluster.engine.shards import ParameterShards
from cluster.inventory import Inventory
from cluster.inventory.optimizers import Adam as AdamConfig
from cluster.inventory.optimizers import AdamW as AdamWConfig
from cluster.inventory.optimizers import OptimizerConfig
from cluster.jobs import evaluation, training
from cluster.jobs.batches import Plan, Rows
from cluster.jobs.calibration import latest as latest_calibration
from cluster.jobs.cancel import Cancel
from cluster.jobs.evaluation import Evaluator
from cluster.jobs.figures import Figures
from cluster.jobs.model_store import store
from cluster.jobs.progress import Display
from cluster.jobs.recordings import Standardization, WorkerWindows
from cluster.jobs.run_folder import RunFolder
from cluster.jobs.session import Session
from cluster.jobs.sources import load_dataset
from cluster.jobs.training import EpochReport, Fit, Trainer
from cluster.jobs.training_metrics import TrainingMetrics
from cluster.jobs.wire import WireMeter
from cluster.models import Network, build


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

    def __init__(self, inventory: Inventory, folder: RunFolder, display: Display, cancel: Cancel) -> None:
        self.inventory, self.job = inventory, inventory.jobs.train
        self.folder, self.display, self.cancel = folder, display, cancel
        self.begin = time.monotonic()

    def run(self) -> dict[str, Any]:
        """Do it all; returns what goes into `result.json`. Raises ClusterError."""
        job = self.job
        dataset = load_dataset(self.inventory, self.display)
        subjects = dataset.subjects()[: dataset.train_windows]
        train_rows, validation_rows = split_validation(
            subjects, job.validation_subjects, job.seed, dataset.classes()[: dataset.train_windows]
        )
        network = build(
            job.model,
            window_steps=dataset.window_steps,
            channels=dataset.channels,
            classes=len(dataset.labels),
            keep_probability=job.keep_probability,
        )
        # Refused before anything is started if a batch cannot be filled.
        self._plan(train_rows)
        with Session(self.inventory) as session:
            shards = ParameterShards(
                network.layout, network.initial(job.seed), optimizer_of(job.optimizer), len(session.servers)
            )
            windows = WorkerWindows(dataset)
            functions = {
                training.FUNCTION: training.traced(job, network, windows, shards),
                evaluation.FUNCTION: evaluation.traced(network, windows, shards),
            }
            dispatcher = session.dispatch(functions, job.deadline_seconds)
            self._say_what(network, session)
            wire, metrics = WireMeter(), TrainingMetrics(session.registry)
            trainer = Trainer(session, dispatcher, shards, job, self.cancel, metrics, wire, classes=len(dataset.labels))
            evaluator = Evaluator(dispatcher, len(dataset.labels))
            standardization = Standardization.of(dataset, train_rows)
            fit = chosen = self._fit(trainer, evaluator, train_rows, validation_rows, standardization, "train")
            refitted = False
            if job.refit and len(validation_rows) and not self.cancel.asked:
                every_row = np.arange(dataset.train_windows, dtype=np.int32)
                standardization, refitted = Standardization.of(dataset, every_row), True
                shards.reset(network.initial(job.seed))
                fit = self._fit(trainer, evaluator, every_row, every_row[:0], standardization, "refit")
            rows = training.test_rows(dataset.train_windows, dataset.test_windows)
            shards.reset(fit.vector)
            bar = self.display.bar("test", -(-len(rows) // evaluation.CHUNK))
            final, confusion = evaluator(rows, standardization, bar.advance)
            bar.close()
            metrics.figures("test", final.loss, final.accuracy, final.f1_macro)
            totals = shards.totals()
            store(self.folder.path / "model", network, fit.vector, standardization, dataset.labels, dataset.sha256)
            self.display.say(f"test: accuracy {final.accuracy:.4f}, macro F1 {final.f1_macro:.4f}")
            scheduled = chosen.scheduled + (fit.scheduled if refitted else 0)
            return {
                **self._header(dataset, network, session),
                "status": "cancelled" if self.cancel.asked else "done",
                "epochs_done": fit.epochs_done,
                "refit": refitted,
                "final": final.describe(),
                "selected": {"epoch": chosen.epoch, **_described(chosen.selected)},
                "confusion": confusion.tolist(),
                "updates": {
                    "scheduled": scheduled,
                    "applied": totals.applied,
                    "duplicates_dropped": totals.duplicates_dropped,
                    "rolled_back": 0,
                },
                "wire": wire.describe(),
                "throughput": _throughput(fit),
                "staleness": _staleness(fit),
                "calibration": latest_calibration(Path(self.inventory.runs), self.inventory.cluster),
                "parameters_sha256": hashlib.sha256(fit.vector.tobytes()).hexdigest(),
                "elapsed_seconds": time.monotonic() - self.begin,
            }

    def _plan(self, rows: Rows | Any) -> Plan:
        job = self.job
        return Plan(rows.astype(np.int32), job.batch_size, job.epochs, job.replay_worst_batches, job.seed)

    def _fit(self, trainer: Trainer, evaluator: Evaluator, rows: Any, validation: Any,
             standardization: Standardization, stage: str) -> Fit:  # fmt: skip
        plan = self._plan(rows)
        bar = self.display.bar(stage, plan.updates)
        latest: list[str] = [""]

        def advance(_windows: int, loss: float) -> None:
            epoch = min(bar.done // plan.per_epoch + 1, plan.epochs)
            bar.advance(1, f"epoch {epoch}/{plan.epochs}  loss {loss:.3f}{latest[0]}")

        def report(line: EpochReport) -> None:
            validation_accuracy = line.validation.accuracy if line.validation else None
            shown = "" if validation_accuracy is None else f"  validation accuracy {validation_accuracy:.4f}"
            latest[0] = f"  {line.windows_per_second:,.0f} windows/s{shown}"
            self.folder.event(stage=stage, **{**asdict(line), "validation": _described(line.validation)})
            self.display.say(
                f"{stage}: epoch {line.epoch:>3}/{plan.epochs}  {line.windows_per_second:>6,.0f} windows/s  "
                f"loss {line.loss:.4f}  accuracy {line.accuracy:.4f}{shown}  {line.seconds_left:.0f} s left"
            )

        validate = training.evaluator_for(evaluator, validation, standardization)
        fit = trainer.fit(plan, standardization, validate, report, advance)
        bar.close()
        return fit

    def _say_what(self, network: Network, session: Session) -> None:
        described = network.describe()
        self.display.say(
            f"model: {described['name']}, {described['parameters']:,} parameters on {len(session.servers)} parameter "
            f"server(s), {len(session.workers)} worker(s), {self.job.mode}, batch {self.job.batch_size}"
        )

    def _header(self, dataset: Dataset, network: Network, session: Session) -> dict[str, Any]:
        return {
            "schema": 1,
            "job": "train",
            "cluster": self.inventory.cluster,
            "mode": self.job.mode,
            "workers": len(session.workers),
            "ps": len(session.servers),
            "seed": self.job.seed,
            "dataset": {
                "name": dataset.name,
                "source": dataset.source,
                "sha256": dataset.sha256,
                "train_windows": dataset.train_windows,
                "test_windows": dataset.test_windows,
                "channels": dataset.channels,
                "window_steps": dataset.window_steps,
                "labels": list(dataset.labels),
            },
            "model": network.describe(),
            "settings": self.job.model_dump(mode="json", by_alias=True),
        }


def _described(figures: Figures | None) -> dict[str, float] | dict[str, None]:
    return figures.describe() if figures is not None else dict.fromkeys(Figures.__dataclass_fields__)


def _throughput(fit: Fit) -> dict[str, float | None]:
    return {
        "windows_per_second": fit.windows / fit.train_seconds if fit.train_seconds else None,
        "step_seconds_p50": stats.median(fit.step_seconds) if fit.step_seconds else None,
    }


def _staleness(fit: Fit) -> dict[str, float | None]:
    return {
        "mean": stats.fmean(fit.staleness) if fit.staleness else None,
        "maximum": max(fit.staleness, default=None),
    }
