"""The job `evaluate`: a trained model's figures on the test set, computed by the workers."""

import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster.data import Dataset
from cluster.engine.chaos import ChaosPlan
from cluster.errors import UsageError
from cluster.inventory import Inventory
from cluster.jobs import evaluation
from cluster.jobs.cancel import Cancel
from cluster.jobs.chaos_log import sabotage
from cluster.jobs.coordinator_metrics import CoordinatorMetrics
from cluster.jobs.evaluation import Evaluator, figures_computed, test_rows
from cluster.jobs.job_metrics import JobMetrics
from cluster.jobs.model_store import StoredModel, load
from cluster.jobs.progress import Display, Terminal
from cluster.jobs.run_folder import RunFolder, newest_model
from cluster.jobs.session import Session
from cluster.jobs.sources import load_dataset
from cluster.jobs.train_result import describe_dataset, describe_figures, digest_of
from cluster.status.events import Evaluated, Stream
from cluster.status.parts import Figures
from ps_node.optimizers.sgd import MomentumSGD
from ps_node.shard import VectorState
from ps_node.shards import ParameterShards
from worker_node.recordings import WorkerWindows


class EvaluateRun:
    """One run of the job."""

    name = "evaluate"

    def __init__(
        self, inventory: Inventory, display: Display, cancel: Cancel, chaos: ChaosPlan | None = None
    ) -> None:  # fmt: skip
        """`chaos`: faults to inject."""
        self.chaos = chaos
        self.inventory, self.display, self.cancel = inventory, display, cancel
        self.begin = time.monotonic()
        self.metrics = CoordinatorMetrics(inventory.shared_folder, display.busy)
        of_job = JobMetrics(self.metrics.registry, membership=lambda: self.metrics.membership)
        self.stream = Stream(self.metrics.metered(of_job.consume), Terminal(display).consume)
        self.evaluated_run: Path | None = None
        self.dataset: Dataset | None = None
        self.model: StoredModel | None = None
        self.final: Figures | None = None
        self.confusion: NDArray[np.int64] | None = None

    def prepare(self) -> None:
        """Load the model and the recordings; raises ClusterError if they do not fit together, and Cancelled."""
        named = self.inventory.jobs.evaluate.run
        run = self.evaluated_run = Path(named) if named else newest_model(Path(self.inventory.runs))
        model = self.model = load(run / "model")
        dataset = self.dataset = load_dataset(self.inventory, self.display, self.cancel, self.stream.emit)
        problem = model.network.problem
        expected = (problem.window_steps, problem.channels, model.labels)
        if expected != (dataset.window_steps, dataset.channels, dataset.labels):
            raise UsageError(
                f"{run}: the model takes windows of {problem.window_steps} x {problem.channels} of the classes "
                f"{', '.join(model.labels)}; {dataset.source} has {dataset.window_steps} x {dataset.channels} of "
                f"{', '.join(dataset.labels)}: evaluate it on data like that it was trained on (--data)"
            )
        try:
            model.network.layout.shards(len(self.inventory.of_role("ps")))
        except ValueError as refused:
            raise UsageError(f"nodes: {refused}") from None

    def run(self, folder: RunFolder) -> None:
        """Evaluate. Raises ClusterError; when cancelled it ends with what there is by then."""
        assert self.model is not None
        assert self.dataset is not None
        with Session(self.inventory, self.cancel, self.metrics, self.display) as session:
            network = self.model.network
            shards = ParameterShards(network.layout, VectorState(self.model.vector), MomentumSGD(), session.places)
            function = evaluation.traced(network, WorkerWindows(self.dataset), shards)
            saboteur, _ = sabotage(self.chaos, folder.path, len(session.places), self.stream.emit)
            dispatcher = session.dispatch(
                {evaluation.FUNCTION: function}, self.inventory.jobs.train.deadline_seconds, saboteur
            )
            rows = test_rows(self.dataset.train_windows, self.dataset.test_windows)
            evaluator = Evaluator(
                dispatcher, len(self.dataset.labels),
                lambda task, windows, seconds: self.stream.emit(Evaluated(task, windows, seconds)),
            )  # fmt: skip
            self.final, self.confusion = evaluation.tested(
                evaluator, rows, self.model.standardization, self.stream.emit, lambda: self.cancel.asked
            )
        if self.final is not None:
            self.stream.emit(figures_computed("test", self.final, self.dataset.labels, self.confusion, None))

    def complete(self) -> bool:
        """Whether every test window was looked at."""
        return (
            self.confusion is not None
            and self.dataset is not None
            and (int(self.confusion.sum()) == self.dataset.test_windows)
        )

    def result(self) -> dict[str, Any]:
        """What there is so far."""
        return {
            "cluster": self.inventory.cluster,
            "workers": len(self.inventory.of_role("worker")),
            "ps": len(self.inventory.of_role("ps")),
            "evaluated_run": str(self.evaluated_run) if self.evaluated_run else None,
            "evaluated_windows": int(self.confusion.sum()) if self.confusion is not None else 0,
            "dataset": describe_dataset(self.dataset),
            "model": self.model.network.describe() if self.model else None,
            "final": describe_figures(self.final),
            "confusion": self.confusion.tolist() if self.confusion is not None else None,
            "parameters_sha256": digest_of(self.model.vector) if self.model else None,
            "elapsed_seconds": time.monotonic() - self.begin,
        }
