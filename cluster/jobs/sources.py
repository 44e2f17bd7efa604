"""The recordings of a job: found, prepared, and said in a line."""

import os
from pathlib import Path
from typing import Any

from cluster.data import Dataset, find_source, prepare
from cluster.data.places import PROJECT_ROOT, user_cache
from cluster.inventory import Inventory
from cluster.jobs.cancel import Cancel
from cluster.jobs.progress import Display


def load_dataset(inventory: Inventory, display: Display, cancel: Cancel) -> Dataset:
    """The prepared windows of the source that `jobs.train.data` or the search order names; says which, and why.

    Raises DataError, or Cancelled between two steps of the preparation.
    """
    cancel.check()
    job = inventory.jobs.train
    source = find_source(job.data.source, os.environ, PROJECT_ROOT, user_cache())
    display.say(f"data: {source.why}")
    shared = inventory.storage.mount if inventory.connection == "ssh" and inventory.storage is not None else None
    bars: dict[str, Any] = {}

    def progress(stage: str, done: int, total: int) -> None:
        cancel.check()
        if stage not in bars:
            bars[stage] = display.bar(stage, total)
        bars[stage].set(done, total)

    dataset = prepare(
        source,
        window_steps=job.data.window_steps,
        window_stride=job.data.window_stride,
        cache=(Path(shared) if shared else user_cache()) / "prepared",
        seed=job.seed,
        progress=progress,
    )
    for bar in bars.values():
        bar.close()
    display.say(
        f"      {dataset.train_windows:,} training and {dataset.test_windows:,} test windows of "
        f"{dataset.window_steps} x {dataset.channels}, {len(dataset.labels)} classes"
    )
    return dataset
