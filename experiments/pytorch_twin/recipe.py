"""What decides a training, as one file for PyTorch.

Initial weights, windows, the batches and rates of every epoch.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from cluster.jobs.cancel import Cancel
from cluster.jobs.fit import Plan
from cluster.jobs.progress import Display
from cluster.jobs.schedule import learning_rate
from cluster.jobs.sources import load_dataset
from core.atomic_write import atomic_write
from core.data.dataset import Dataset
from core.inventory import Inventory
from core.inventory.training import TrainJob
from core.models.network import build
from worker_node.recordings import Standardization


def write_recipe(inventory: Inventory, path: Path) -> dict[str, Any]:
    """Write `path` (.npz) and the settings beside it (.json), once; returns the settings.

    The job is one of the plain family without held-out subjects, with AdamW and without dropout:
    what the twin knows.
    """
    described = path.with_suffix(".json")
    if described.exists():
        return dict(json.loads(described.read_text()))
    job = inventory.jobs.train
    dataset = load_dataset(inventory, Display(quiet=True), Cancel(), lambda event: None)
    arrays = _arrays(job, dataset)
    settings = _settings(job, dataset)
    np.savez(path, **arrays)
    atomic_write(described, json.dumps(settings, indent=2).encode() + b"\n")
    return settings


def _arrays(job: TrainJob, dataset: Dataset) -> dict[str, Any]:
    network = build(
        job.model,
        window_steps=dataset.window_steps,
        channels=dataset.channels,
        classes=dataset.outputs,
    )
    rows = np.arange(dataset.train_windows, dtype=np.int32)
    standard = Standardization.of(dataset, rows)
    windows = (np.asarray(dataset.windows(), np.float32) - standard.mean) / standard.deviation
    classes = np.asarray(dataset.classes(), np.int32)
    plan = Plan(rows, job.batch_size, job.epochs, 0, job.seed)
    updates = [plan.fresh(epoch) for epoch in range(job.epochs)]
    rates = [
        [
            learning_rate(job.schedule, job.optimizer.learning_rate, one.batches[0], plan.batches)
            for one in epoch
        ]
        for epoch in updates
    ]
    known = dataset.train_windows
    return {
        **network.layout.unpack(network.initial(job.seed)),
        "train_windows": windows[:known],
        "train_classes": classes[:known],
        "test_windows": windows[known : known + dataset.test_windows],
        "test_classes": classes[known : known + dataset.test_windows],
        "batches": np.array([[one.rows[0] for one in epoch] for epoch in updates], np.int32),
        "rates": np.array(rates, np.float64),
    }


def _settings(job: TrainJob, dataset: Dataset) -> dict[str, Any]:
    model = job.model.model_dump()
    optimizer = job.optimizer.model_dump()
    return {
        "stacked": model["n_stacked_layers"],
        "highway": model["n_layers_in_highway"],
        "bidirectional": model["bidirectional"],
        "hidden": model["hidden"],
        "classes": dataset.outputs,
        "betas": [optimizer["beta_1"], optimizer["beta_2"]],
        "epsilon": optimizer["epsilon"],
        "weight_decay": optimizer["weight_decay"],
        "clip_norm": job.clip_norm,
        "label_smoothing": job.label_smoothing,
        "epochs": job.epochs,
        "seed": job.seed,
        "batch_size": job.batch_size,
        "windows_an_epoch": dataset.train_windows // job.batch_size * job.batch_size,
        "dataset": dataset.name,
        "dataset_sha256": dataset.sha256,
    }
