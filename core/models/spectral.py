"""`spectral`: hundreds of standardized statistics of a window, then one hidden layer."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from pydantic import Field

from core.ground.lazy import np, tf
from core.inventory.fields import Choice
from core.models.layers import Dropout, Product
from core.models.network import BuiltIn, Parameter, Problem, constant
from core.models.operations import Operations, Tensor
from core.models.tensorflow_operations import TensorFlowOperations
from core.models.window_statistics import AXES, WindowStatistics
from core.parameters import Layout, Vector

FARTHEST = 8.0
"""Standard deviations from the mean beyond which a statistic says nothing more."""
CONSTANT = 1e-6
"""A statistic that varies less than this over the training windows is not scaled."""


@dataclass(frozen=True)
class StandardizedStatistics:
    """The statistics of windows, less their mean and over their deviation in training windows.

    The figures for that are untrained parameters: `scale` and `shift` (channels,) undo the
    standardization of the channels, up to one scale for each sensor; `mean` and `deviation` are
    (statistics,). `measured` fills them in before the first update. They then stay as they are:
    every batch hands back what it found.
    """

    name: str
    problem: Problem

    @property
    def function(self) -> WindowStatistics:
        """The function of the windows."""
        problem = self.problem
        return WindowStatistics(problem.window_steps, problem.channels, problem.sensors)

    def parameters(self) -> list[Parameter]:
        """Four untrained ones."""
        channels = (self.problem.channels,)
        count = (self.function.count,)
        starts = (
            ("scale", channels, 1.0),
            ("shift", channels, 0.0),
            ("mean", count, 0.0),
            ("deviation", count, 1.0),
        )
        return [
            Parameter(
                f"{self.name}/{name}",
                shape,
                trained=False,
                averaged=False,
                decayed=False,
                initial=constant(value),
            )
            for name, shape, value in starts
        ]

    def __call__(self, ops: Operations, windows: Tensor) -> Tensor:
        """Return float32 (batch, statistics) from standardized windows (batch, steps, channels)."""
        # The tail is a part of the vector that is differentiated: without this, so were every
        # statistic.
        return ops.from_windows(lambda: self.standardized(ops, windows))

    def standardized(self, ops: Operations, windows: Tensor) -> Tensor:
        """Return the statistics as layers get them, from within `Operations.from_windows`."""
        mean = ops.parameters[f"{self.name}/mean"]
        deviation = ops.parameters[f"{self.name}/deviation"]
        standardized = (self.measures(ops, windows) - mean) / deviation
        return ops.clip(standardized, -FARTHEST, FARTHEST)

    def measures(self, ops: Operations, windows: Tensor) -> Tensor:
        """Return the statistics as they are before that."""
        scale = ops.parameters[f"{self.name}/scale"]
        shift = ops.parameters[f"{self.name}/shift"]
        return self.function(ops, windows * scale + shift)

    def measured(self, standardization: Any, windows: Iterable[Any]) -> dict[str, Any]:
        """Return the untrained parameters, from training windows in blocks (n, steps, channels).

        `standardization`, float32 (2, channels), is the mean and deviation with which the windows
        were standardized. The library computes the statistics, and the sums are float64 in the
        order of the windows: the same bits for any cluster, whatever processor the coordinator has.
        """
        mean, deviation = (np.asarray(row, np.float64) for row in standardization)
        of_sensor = deviation.copy()
        if self.problem.sensors:
            axes = np.add.outer(self.problem.sensors, np.arange(AXES))
            of_sensor[axes] = np.sqrt(np.square(deviation)[axes].mean(1, keepdims=True))
        scale, shift = ((values / of_sensor).astype(np.float32) for values in (deviation, mean))
        compute = Measuring(self).computing({"scale": scale, "shift": shift})
        total = np.zeros(self.function.count)
        squares = np.zeros(self.function.count)
        rows = 0
        for block in windows:
            statistics = compute(np.asarray(block, np.float32)).numpy().astype(np.float64)
            total = total + statistics.sum(0)
            squares = squares + np.square(statistics).sum(0)
            rows = rows + len(statistics)
        average = total / rows
        spread = np.sqrt(np.maximum(squares / rows - np.square(average), 0.0))
        spread = np.where(spread < CONSTANT, 1.0, spread)
        fitted: dict[str, Any] = {
            "scale": scale,
            "shift": shift,
            "mean": average,
            "deviation": spread,
        }
        return {f"{self.name}/{name}": values.astype(np.float32) for name, values in fitted.items()}


class Measuring:
    """A network that ends with the statistics themselves."""

    measuring = None

    def __init__(self, statistics: StandardizedStatistics) -> None:
        self._statistics = statistics
        self.layout = Layout(statistics.parameters()[:2])
        self.problem = replace(statistics.problem, outputs=statistics.function.count)

    def logits(self, ops: Operations, windows: Tensor) -> Tensor:
        """Write the network."""
        return self._statistics.measures(ops, windows)

    def computing(self, values: dict[str, Any]) -> Callable[[Any], Any]:
        """Return what computes the statistics of windows, with these parameters.

        It is TensorFlow in an installation whose library of kernels cannot be loaded.
        """
        from core.models.native import (
            NativeNetwork,
        )  # NumPy's weight, of which an inventory has none
        from kernels.library import can_be_loaded

        named = {f"{self._statistics.name}/{name}": value for name, value in values.items()}
        if not can_be_loaded():
            return lambda windows: self.logits(TensorFlowOperations(named), tf.constant(windows))
        native = NativeNetwork(self)
        vector = self.layout.pack(named)
        return lambda windows: native.answers(vector[:0], vector, windows)


class MeasuringForLayers(Measuring):
    """A network that ends with the statistics as the layers of another one get them.

    It has the `layout` of that one, which also `reads_samples` of the windows or does not.
    """

    def __init__(
        self, statistics: StandardizedStatistics, layout: Layout, *, reads_samples: bool
    ) -> None:
        super().__init__(statistics)
        self.layout = layout
        self.reads_samples = reads_samples

    def logits(self, ops: Operations, windows: Tensor) -> Tensor:
        """Write the network."""
        return self._statistics.standardized(ops, windows)


class SpectralModel(Choice):
    """Statistics and spectrum of each window, then one hidden layer.

    The statistics are standardized over the training windows.
    """

    name: Literal["spectral"] = Field("spectral", description="which network this is")
    hidden: int = Field(
        64, ge=0, le=1024, description="units of the hidden layer; 0 is none, a linear model"
    )
    dropout: float = Field(
        0.5,
        ge=0.0,
        lt=1.0,
        description="share of its units dropped in training, whatever keep_probability is",
    )


class MeasuredNetwork(BuiltIn):
    """A network whose standardized statistics are measured before the first update."""

    statistics: StandardizedStatistics

    reads_samples: ClassVar[bool] = True

    @classmethod
    def remembers_statistics(cls) -> bool:
        """Say yes: the statistics follow from the window alone."""
        return True

    @property
    def measuring(self) -> MeasuringForLayers:
        """The part that computes the statistics."""
        return MeasuringForLayers(self.statistics, self.layout, reads_samples=self.reads_samples)

    def measured(self, vector: Vector, standardization: Any, windows: Iterable[Any]) -> Vector:
        """Fill in the statistics' parameters."""
        fitted = self.statistics.measured(standardization, windows)
        return self.layout.pack({**self.layout.unpack(vector), **fitted})


class Spectral(MeasuredNetwork):
    """Standardized statistics, a hidden layer with ReLU and dropout, a head."""

    name = "spectral"
    Options = SpectralModel
    reads_samples = False

    @classmethod
    def widest_layer(cls, options: SpectralModel) -> int:
        """Count the units of the widest layer."""
        return max(1, options.hidden)

    def __init__(self, config: SpectralModel, problem: Problem) -> None:
        self.statistics = StandardizedStatistics("statistics", problem)
        width = self.statistics.function.count
        if config.hidden:
            self._hidden = [Product("hidden", width, config.hidden)]
        else:
            self._hidden = []
        self._head = Product("head", config.hidden or width, problem.classes)
        self._dropout = Dropout(1.0 - config.dropout, site=0)
        super().__init__(config, problem, [self.statistics, *self._hidden, self._head])

    def logits(self, ops: Operations, windows: Tensor) -> Tensor:
        """Write the network."""
        activations = self.statistics(ops, windows)
        for layer in self._hidden:
            activations = self._dropout(ops, ops.unary("relu", layer(ops, activations)))
        return self._head(ops, activations)
