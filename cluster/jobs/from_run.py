"""Parameters of another run that a training continues, perhaps with further classes."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cluster.jobs.run_folder import model_run
from cluster.jobs.train_result import StoredModel, load
from core.data import Dataset
from core.ground.errors import UsageError
from core.inventory import Inventory
from core.models.network import Network
from core.parameters import Vector
from recognise.plausibility import refuse_other_windows
from worker_node.recordings import Standardization

log = logging.getLogger(__name__)

KEY = "jobs.train.from_run"


def model_to_continue(
    inventory: Inventory, network: Network, dataset: Dataset
) -> StoredModel | None:
    """Return the model of the run that the job names; None without one.

    Raises UsageError where it is for other windows, knows a class that the recordings lack, or is
    another network but for its number of classes.
    """
    named = inventory.jobs.train.from_run
    if named is None:
        return None
    run = model_run(named, Path(inventory.runs))
    model = load(run / "model", KEY)
    refuse_other_windows(f"{KEY}: {run}", dataset.signals, model.signals)
    if missing := [label for label in model.labels if label not in dataset.labels]:
        raise UsageError(
            f"{KEY}: {run} has the class {missing[0]!r}, the recordings have"
            f" {', '.join(dataset.labels)}: add recordings of it, or train without --from"
        )
    if len(model.labels) == len(dataset.labels) and list(model.labels) != list(dataset.labels):
        raise UsageError(
            f"{KEY}: {run} has its classes in another order, {', '.join(model.labels)}: take the"
            " recordings in the form that it was trained on"
        )
    try:
        continued(network.initial(0), network, model, dataset.labels)
    except ValueError:
        raise UsageError(
            f"{KEY}: {run} is another network than the one of this job: give the job the settings"
            f" of {run / 'result.json'}, `settings.model`"
        ) from None
    if model.dataset_sha256 != dataset.sha256:
        log.warning(
            "continues %s, which other recordings trained: the test says nothing about people"
            " who are in both",
            run,
        )
    return model


def standardization(model: StoredModel | None, dataset: Dataset, rows: Any) -> Standardization:
    """Return that of these rows; of a model that a training continues, which learnt by it."""
    if model is not None:
        return model.standardization
    return Standardization.of_rows(dataset, rows)


def continued(
    vector: Vector, network: Network, model: StoredModel, labels: Sequence[str]
) -> Vector:
    """Return `vector` with the parameters of the model, those of its classes at their new places.

    What belongs to a further class stays as it is in `vector`. Raises ValueError for parameters of
    other shapes.
    """
    places = [labels.index(label) for label in model.labels]
    trained = list(model.network.layout.unpack(model.vector).values())
    values = network.layout.unpack(vector)
    for (name, value), before in zip(values.items(), trained, strict=True):
        values[name] = before
        for axis, sizes in enumerate(zip(before.shape, value.shape, strict=True)):
            if sizes[0] != sizes[1] and sizes == (len(places), len(labels)):
                values[name] = value.copy()
                np.moveaxis(values[name], axis, 0)[places] = np.moveaxis(before, axis, 0)
    return network.layout.pack(values)
