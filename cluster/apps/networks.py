"""The network that an app describes: with Keras or without."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cluster.engine.environment  # noqa: F401  (before tensorflow)
from cluster.apps.app import App, AppError
from cluster.data import Dataset
from cluster.models.network import Network, Problem
from cluster.models.objective import TASKS, Objective
from cluster.parameters import Vector

import tensorflow as tf  # isort: skip

AUGMENTATION = 0x5EED
"""Folded into the seed of a micro-batch for augment(): dropout sites count from 0."""


@dataclass(frozen=True)
class Kind:
    """What an app's model is for: the examples it takes, the targets it is compared with, its task."""

    task: str
    outputs: int
    input_shape: tuple[int, ...]
    input_dtype: str
    target_shape: tuple[int, ...]
    target_dtype: str

    @classmethod
    def of(cls, dataset: Dataset) -> "Kind":
        """Of the examples of a data set. What is standardized is float32."""
        dtype = "float32" if dataset.standardized else dataset.inputs.dtype
        targets = dataset.targets
        return cls(dataset.task, dataset.outputs, dataset.input_shape, dtype, targets.shape, targets.dtype)

    @property
    def problem(self) -> Problem:
        """What a network needs of it."""
        return Problem(self.input_shape, self.outputs, input_dtype=self.input_dtype)


def objective_of(app: App, kind: Kind) -> Objective:
    """The task with the loss and the metrics that the app brings. Raises AppError if the app states another task."""
    if app.task not in (None, kind.task):
        raise AppError(f"{app.file}: task: {app.task}, but the data are for {kind.task}: change one of them")

    def of(name: str) -> Any:
        return (lambda targets, answers: app.call(name, targets, answers)) if app.has(name) else None

    return TASKS[kind.task](kind.outputs, loss=of("loss"), metrics=of("metrics"))


class AppNetwork(Network):
    """A network that an app describes."""

    knows_batch = True

    def __init__(self, app: App, kind: Kind, seed: int) -> None:
        self.app, self.kind, self.problem, self.seed = app, kind, kind.problem, seed
        self.objective = objective_of(app, kind)

    def notes(self) -> list[str]:
        """Lines that a person should read before a long training."""
        return []

    def constants(self) -> dict[str, Any]:
        """Values by name that are neither trained nor averaged, and belong to the model anyway."""
        return {}

    def fix(self, constants: Mapping[str, Any]) -> None:
        """Take the constants of a stored model. Raises KeyError if one is missing."""
        del constants

    def export(self, vector: Vector, folder: Path) -> None:
        """Write the model with the values of a flat vector for other programs, as far as its kind has a format.

        Raises AppError if the app's model cannot be written, and ClusterError if the disk does not take it.
        """
        del vector, folder

    def augmented(self, inputs: Any, targets: Any, seed: Any) -> tuple[Any, Any]:
        """See Network: what the app's augment() makes of them."""
        if not self.app.has("augment"):
            return inputs, targets
        own = tf.random.experimental.stateless_fold_in(seed, AUGMENTATION, alg="philox")
        found = self.app.call("augment", inputs, targets, own)
        if not isinstance(found, tuple) or len(found) != 2:
            raise AppError(f"{self.app.file}: augment(): expected (x, y), got {type(found).__name__}")
        return found

    def describe(self) -> dict[str, object]:
        """See Network."""
        shape = list(self.problem.input_shape)
        return {
            "name": self.app.name,
            "task": self.kind.task,
            "parameters": self.layout.trained_size,
            "statistics": self.layout.statistics_size,
            "input_shape": shape,
            **({"window_steps": shape[0], "channels": shape[1]} if len(shape) == 2 else {}),
            "outputs": self.problem.outputs,
            "classes": self.problem.outputs,
        }


def network_of(app: App, kind: Kind, seed: int) -> AppNetwork:
    """The app's model with initial values from `seed`.

    Raises AppError for a model that the cluster cannot train, with the reason and the remedy.
    """
    network: AppNetwork
    if app.has("model"):
        from cluster.apps.keras_network import KerasNetwork

        network = KerasNetwork(app, kind, seed)
    else:
        from cluster.apps.plain_network import PlainNetwork

        network = PlainNetwork(app, kind, seed)
    from cluster.apps.checks import check

    check(network)
    return network
