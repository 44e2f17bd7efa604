"""What the network of every app has, with Keras or without."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typing_extensions import override

from cluster.apps.app import App, AppError
from cluster.apps.travels import constants_travel
from core.data import Dataset
from core.ground.lazy import tf
from core.models.network import Network, Problem
from core.models.objective import Objective
from core.models.tasks import TASKS
from core.parameters import Vector

AUGMENTATION = 0x5EED
"""Folded into the seed of a slot for augment(): dropout sites count from 0."""


@dataclass(frozen=True)
class Kind:
    """What an app's model is for: its examples, the targets it is compared with, its task."""

    task: str
    outputs: int
    input_shape: tuple[int, ...]
    input_dtype: str
    target_shape: tuple[int, ...]
    target_dtype: str

    @classmethod
    def of(cls, dataset: Dataset) -> "Kind":
        """Return the kind of a data set's examples. What is standardized is float32."""
        if dataset.standardized:
            dtype = "float32"
        else:
            dtype = dataset.inputs.dtype
        targets = dataset.targets
        return cls(
            dataset.task, dataset.outputs, dataset.input_shape, dtype, targets.shape, targets.dtype
        )

    @property
    def problem(self) -> Problem:
        """Return what a network needs of it."""
        return Problem(self.input_shape, self.outputs, input_dtype=self.input_dtype)


def objective_of(app: App, kind: Kind) -> Objective:
    """The task with the loss and the metrics that the app brings.

    Raises AppError if the app states another task.
    """
    if app.task not in (None, kind.task):
        raise AppError(
            f"{app.file}: task: {app.task}, but the data are for {kind.task}: change one of them"
        )

    def of(name: str) -> Any:
        if app.has(name):
            return lambda targets, answers: traced_call(app, name, targets, answers)
        return None

    return TASKS[kind.task](kind.outputs, loss=of("loss"), metrics=of("metrics"))


def traced_call(app: App, name: str, *arguments: Any) -> Any:
    """The answer of an app's function that is traced. Raises AppError, as `App.call` does."""
    with constants_travel():
        return app.call(name, *arguments)


class AppNetwork(Network):
    """A network that an app describes."""

    knows_batch = True

    def __init__(self, app: App, kind: Kind, seed: int) -> None:
        self.app = app
        self.kind = kind
        self.problem = kind.problem
        self.seed = seed
        self.objective = objective_of(app, kind)
        self.gradient_notes: list[str] = []
        """Lines on weights that no gradient reaches."""

    def notes(self) -> list[str]:
        """Lines that a person should read before a long training."""
        return [*self.app.notes, *self.gradient_notes]

    def stated_settings(self) -> dict[str, Any] | None:
        """Keys of `jobs.train` that the model itself states, or None.

        Raises UsageError for what no job can do.
        """
        return None

    def constants(self) -> dict[str, Any]:
        """Values by name that are neither trained nor averaged, and belong to the model anyway."""
        return {}

    def fix(self, constants: Mapping[str, Any]) -> None:
        """Take the constants of a stored model. Raises KeyError if one is missing."""
        del constants

    def export(self, vector: Vector, folder: Path) -> None:
        """Write the model with the values of a flat vector, if its kind has a format.

        The format is one for other programs. Raises AppError if the app's model cannot be written,
        and ClusterError if the disk does not take it.
        """
        del vector, folder

    @override
    def augmented(self, inputs: Any, targets: Any, seed: Any) -> tuple[Any, Any]:
        """Return what the app's augment() makes of both; without one they stay as they are."""
        if not self.app.has("augment"):
            return inputs, targets
        augmentation_seed = tf.random.experimental.stateless_fold_in(
            seed, AUGMENTATION, alg="philox"
        )
        examples = traced_call(self.app, "augment", inputs, targets, augmentation_seed)
        if not isinstance(examples, tuple) or len(examples) != 2:
            raise AppError(
                f"{self.app.file}: augment(): expected (x, y), got {type(examples).__name__}"
            )
        return examples

    @override
    def describe(self) -> dict[str, object]:
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
