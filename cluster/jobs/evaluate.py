"""The job `evaluate`: a trained model's figures on the test set, computed by the workers."""

import hashlib
import time
from pathlib import Path
from typing import Any

from cluster.engine.optimizers import MomentumSGD
from cluster.engine.shards import ParameterShards
from cluster.errors import UsageError
from cluster.inventory import Inventory
from cluster.jobs import evaluation
from cluster.jobs.cancel import Cancel
from cluster.jobs.evaluation import Evaluator
from cluster.jobs.model_store import load
from cluster.jobs.progress import Display
from cluster.jobs.recordings import WorkerWindows
from cluster.jobs.run_folder import RunFolder, newest_run
from cluster.jobs.session import Session
from cluster.jobs.sources import load_dataset
from cluster.jobs.training import test_rows


class EvaluateRun:
    """One run of the job."""

    def __init__(self, inventory: Inventory, folder: RunFolder, display: Display, cancel: Cancel) -> None:
        self.inventory = inventory
        self.folder, self.display, self.cancel = folder, display, cancel

    def run(self) -> dict[str, Any]:
        """Do it all; returns what goes into `result.json`. Raises ClusterError."""
        begin = time.monotonic()
        named = self.inventory.jobs.evaluate.run
        run = Path(named) if named else newest_run(Path(self.inventory.runs), "train")
        model = load(run / "model")
        dataset = load_dataset(self.inventory, self.display)
        problem = model.network.problem
        expected = (problem.window_steps, problem.channels, model.labels)
        if expected != (dataset.window_steps, dataset.channels, dataset.labels):
            raise UsageError(
                f"{run}: the model takes windows of {problem.window_steps} x {problem.channels} of the classes "
                f"{', '.join(model.labels)}; {dataset.source} has {dataset.window_steps} x {dataset.channels} of "
                f"{', '.join(dataset.labels)}: evaluate it on data like that it was trained on (--data)"
            )
        with Session(self.inventory) as session:
            shards = ParameterShards(model.network.layout, model.vector, MomentumSGD(), len(session.servers))
            function = evaluation.traced(model.network, WorkerWindows(dataset), shards)
            dispatcher = session.dispatch({evaluation.FUNCTION: function}, self.inventory.jobs.train.deadline_seconds)
            rows = test_rows(dataset.train_windows, dataset.test_windows)
            bar = self.display.bar("test", -(-len(rows) // evaluation.CHUNK))
            final, confusion = Evaluator(dispatcher, len(dataset.labels))(rows, model.standardization, bar.advance)
            bar.close()
        self.display.say(f"test: accuracy {final.accuracy:.4f}, macro F1 {final.f1_macro:.4f}")
        return {
            "schema": 1,
            "job": "evaluate",
            "cluster": self.inventory.cluster,
            "workers": len(session.workers),
            "ps": len(session.servers),
            "status": "done",
            "evaluated_run": str(run),
            "dataset": {
                "name": dataset.name,
                "source": dataset.source,
                "sha256": dataset.sha256,
                "train_windows": dataset.train_windows,
                "test_windows": dataset.test_windows,
                "channels": dataset.channels,
            },
            "model": model.network.describe(),
            "final": final.describe(),
            "confusion": confusion.tolist(),
            "parameters_sha256": hashlib.sha256(model.vector.tobytes()).hexdigest(),
            "elapsed_seconds": time.monotonic() - begin,
        }
