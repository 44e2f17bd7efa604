"""What the network of every app has, and one without Keras.

There init(seed) names the arrays, and forward() computes with them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from cluster.apps.app import App, AppError
from cluster.apps.travels import constants_travel
from core.data import Dataset
from core.ground.lazy import tf
from core.models.network import ForwardPass, Network, Problem, Tensors
from core.models.objective import Objective
from core.models.tasks import TASKS
from core.parameters import STATISTICS_RATE, Layout, ParameterSpec, Vector

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
    def of_dataset(cls, dataset: Dataset) -> "Kind":
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

    def traced_function(name: str) -> Any:
        if app.has(name):
            return lambda targets, answers: traced_call(app, name, targets, answers)
        return None

    return TASKS[kind.task](
        kind.outputs, loss=traced_function("loss"), metrics=traced_function("metrics")
    )


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


class PlainNetwork(AppNetwork):
    """A network of init(seed), which answers with {name: array}, or with two such.

    The second of the two has statistics, which no gradient trains. forward(parameters, statistics,
    x, training, seed) answers with the outputs, or in training with (outputs, new statistics).
    """

    def __init__(self, app: App, kind: Kind, seed: int) -> None:
        """Raises AppError for arrays that cannot travel."""
        super().__init__(app, kind, seed)
        trained, statistics = self._arrays(seed)
        self._statistics = tuple(statistics)
        specs = [
            ParameterSpec(name, value.shape, decayed=value.ndim > 1)
            for name, value in trained.items()
        ]
        specs += [
            ParameterSpec(name, value.shape, False, decayed=False)
            for name, value in statistics.items()
        ]
        self.layout = Layout(specs)

    def _arrays(self, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
        answer = self.app.call("init", seed)
        if isinstance(answer, tuple) and len(answer) == 2:
            pair = answer
        else:
            pair = (answer, {})
        trained, statistics = (
            self._checked(part, which)
            for part, which in zip(pair, ("parameters", "statistics"), strict=True)
        )
        both = sorted(set(trained) & set(statistics))
        if both:
            raise AppError(
                f"{self.app.file}: init(): {both[0]!r} is a parameter and a statistic: rename one"
            )
        if not trained:
            raise AppError(
                f"{self.app.file}: init(): expected at least one array to train, got none"
            )
        return trained, statistics

    def _checked(self, part: Any, which: str) -> dict[str, Any]:
        where = f"{self.app.file}: init()"
        if not isinstance(part, dict):
            raise AppError(
                f"{where}: expected {{name: array}} as its {which}, got {type(part).__name__}"
            )
        arrays = {}
        for name, value in part.items():
            if not isinstance(name, str) or not name:
                raise AppError(f"{where}: expected names that are text, got {name!r}")
            array = np.asarray(value)
            if array.dtype.kind not in "fiu" or not array.size:
                raise AppError(
                    f"{where}: {name}: expected an array of numbers, got {array.dtype} of"
                    f" {array.shape}"
                )
            if not np.isfinite(array).all():
                raise AppError(
                    f"{where}: {name}: expected finite numbers, got {array[~np.isfinite(array)][0]}"
                )
            arrays[name] = array.astype(np.float32)
        return arrays

    @override
    def initial(self, seed: int) -> Vector:
        trained, statistics = self._arrays(seed)
        return self.layout.pack({**trained, **statistics})

    @override
    def apply(
        self, parameters: Tensors, windows: tf.Tensor, *, training: bool, seed: tf.Tensor
    ) -> ForwardPass:
        statistics = {name: parameters[name] for name in self._statistics}
        trained = {name: value for name, value in parameters.items() if name not in statistics}
        output = traced_call(
            self.app, "forward", trained, dict(statistics), windows, training, seed
        )
        if isinstance(output, tuple) and len(output) == 2:
            answers, new = output
        else:
            answers, new = (output, statistics)
        if not isinstance(answers, tf.Tensor):
            raise AppError(
                f"{self.app.file}: forward(): expected a tensor, got {type(answers).__name__}"
            )
        if not training:
            return ForwardPass(tf.cast(answers, tf.float32))
        if not isinstance(new, dict) or set(new) != set(statistics):
            raise AppError(
                f"{self.app.file}: forward(): expected the statistics"
                f" {', '.join(statistics) or '(none)'}, got"
                f" {', '.join(new) if isinstance(new, dict) else type(new).__name__}"
            )
        pushed = {
            name: tf.stop_gradient(
                before + (tf.cast(new[name], tf.float32) - before) / STATISTICS_RATE
            )
            for name, before in statistics.items()
        }
        return ForwardPass(tf.cast(answers, tf.float32), pushed)
