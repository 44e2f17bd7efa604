"""A prepared data set that lies where all nodes see it: opened as it is, never written to.

It was prepared elsewhere, so the settings it was prepared with are held against those of the job.
"""

import json
from pathlib import Path

from cluster.data.dataset import MANIFEST, Dataset, open_prepared
from cluster.data.npz import DEFAULT_WINDOW_STEPS
from cluster.errors import DataError


def open_published(folder: Path, *, window_steps: int, window_stride: int, seed: int) -> Dataset:
    """The data set in `folder`, after comparing its files with its manifest, and its settings with the given ones.

    Settings that its kind of source does not know do not matter. Raises DataError.
    """
    dataset = open_prepared(folder)
    settings = json.loads((folder / MANIFEST).read_bytes()).get("preparation")
    if not isinstance(settings, dict):
        raise DataError(f"{folder / MANIFEST}: does not say how it was prepared; prepare the data again")
    wanted = {"window_steps": window_steps, "window_stride": window_stride, "seed": seed}
    if not settings and window_steps != DEFAULT_WINDOW_STEPS:
        # Windows that were cut before they came here: they have one length, and nobody chose it.
        settings = {"window_steps": dataset.window_steps}
    for name, value in settings.items():
        if value != wanted.get(name):
            raise DataError(
                f"{folder}: prepared with {name} {value}, expected {wanted.get(name)} as in the job; prepare and "
                f"publish the data for this job, or change the job"
            )
    return dataset
