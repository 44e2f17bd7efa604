"""The job `evaluate`: a trained model's figures on the test set."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cluster.apps.app_network import AppNetwork
from cluster.jobs.evaluation import (
    Evaluation,
    EvaluationResult,
    Evaluator,
    describe_test,
    figures_computed,
    run_test_stage,
    say_groups,
)
from cluster.jobs.job_network import arithmetic_of_job, refuse_too_many_servers
from cluster.jobs.lifecycle import Job
from cluster.jobs.run_folder import RunFolder, model_run
from cluster.jobs.run_logs import sabotage
from cluster.jobs.session import Session
from cluster.jobs.sources import load_dataset
from cluster.jobs.train_result import (
    StoredModel,
    describe_dataset,
    digest_of,
    load,
)
from core.data import Dataset
from core.ground.errors import UsageError
from core.inventory.slots import LIBRARY
from core.status.events import Evaluated
from ps_node.optimizers.sgd import MomentumSGD
from ps_node.shard import VectorState
from ps_node.shards import ParameterShards
from recognise.plausibility import refuse_other_windows
from worker_node.recordings import WorkerWindows


def extent(shape: Sequence[int]) -> str:
    """A shape for a message: `128 x 9`."""
    return " x ".join(map(str, shape)) or "one number"


class EvaluateRun(Job):
    """One run of the job."""

    name = "evaluate"

    evaluated_run: Path | None = None
    dataset: Dataset | None = None
    model: StoredModel | None = None
    evaluation: EvaluationResult | None = None

    def prepare(self) -> None:
        """Load the model and the recordings.

        Raises ClusterError if they do not fit together, and Cancelled.
        """
        named = self.inventory.jobs.evaluate.run
        run = self.evaluated_run = model_run(named, Path(self.inventory.runs))
        with self.cancel.at_once():
            model = self.model = load(run / "model")
        dataset = self.dataset = load_dataset(
            self.inventory,
            self.display,
            self.cancel,
            self.stream.emit,
            model.network.app if isinstance(model.network, AppNetwork) else None,
            None if self.app is None else self.app.data,
        )
        self.unit = dataset.unit
        self.task_type = dataset.task
        problem = model.network.problem
        expected = (problem.input_shape, problem.outputs, model.labels)
        if expected != (dataset.input_shape, dataset.outputs, dataset.labels):
            raise UsageError(
                f"{run}: the model takes windows of {extent(problem.input_shape)} of the classes"
                f" {', '.join(model.labels)}; {dataset.source} has {extent(dataset.input_shape)}"
                f" of {', '.join(dataset.labels)}: evaluate it on data like that it was trained on"
                " (--data)"
            )
        refuse_other_windows(str(dataset.source), dataset.signals, model.signals)
        if (
            isinstance(model.network, AppNetwork)
            and model.network.kind.target_shape != dataset.targets.shape
        ):
            raise UsageError(
                f"{run}: the model is for targets of {extent(model.network.kind.target_shape)} an"
                f" example; {dataset.source} has {extent(dataset.targets.shape)}: evaluate it on"
                " data like that it was trained on (--data)"
            )
        refuse_too_many_servers(model.network, self.inventory)

    def run(self, folder: RunFolder) -> None:
        """Evaluate. Raises ClusterError; when cancelled it ends with what there is by then."""
        assert self.model is not None
        assert self.dataset is not None
        device = self.inventory.jobs.train.device_of_workers
        with Session(self.inventory, self.cancel, self.metrics, self.display, device) as session:
            network = self.model.network
            shards = ParameterShards(
                network.layout, VectorState(self.model.vector), MomentumSGD(), session.places
            )
            job = self.inventory.jobs.train
            job = job.computed_by(arithmetic_of_job(job, network).name)
            if job.arithmetic == LIBRARY or network.has_library_layers:
                session.require_library()
            evaluation = Evaluation(network, WorkerWindows(self.dataset), shards, job)
            saboteur, _ = sabotage(self.chaos, folder.path, len(session.places), self.stream.emit)
            dispatcher = session.dispatch(
                self.inventory.jobs.train.deadline_seconds,
                saboteur,
            )
            evaluator = Evaluator(
                dispatcher,
                evaluation,
                lambda task, windows, seconds: self.stream.emit(Evaluated(task, windows, seconds)),
            )
            self.evaluation = run_test_stage(
                evaluator,
                self.dataset,
                self.model.standardization,
                self.stream.emit,
                lambda: self.cancel.asked,
            )
        if self.evaluation.figures is not None:
            self.stream.emit(figures_computed("test", self.evaluation, self.dataset.labels, None))
            say_groups(self.evaluation.of_groups, self.dataset, self.display)

    def complete(self) -> bool:
        """Whether every test window was looked at."""
        evaluation = self.evaluation
        dataset = self.dataset
        return (
            evaluation is not None
            and dataset is not None
            and evaluation.examples == dataset.test_windows
        )

    def result(self) -> dict[str, Any]:
        """Return the result so far."""
        evaluation = self.evaluation
        return {
            **super().result(),
            "evaluated_run": str(self.evaluated_run) if self.evaluated_run else None,
            "evaluated_windows": evaluation.examples if evaluation else 0,
            "dataset": describe_dataset(self.dataset),
            "model": self.model.network.describe() if self.model else None,
            **describe_test(evaluation, self.dataset),
            "parameters_sha256": digest_of(self.model.vector) if self.model else None,
        }
