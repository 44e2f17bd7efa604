"""A model without Keras: init(seed) names its arrays, forward() computes with them."""

from typing import Any

import numpy as np
from typing_extensions import override

from cluster.apps.app import App, AppError
from cluster.apps.app_network import AppNetwork, Kind, traced_call
from core.ground.lazy import tf
from core.models.network import ForwardPass, Tensors
from core.parameters import STATISTICS_RATE, Layout, ParameterSpec, Vector


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
