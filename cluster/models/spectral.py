"""`spectral`: hundreds of statistics of a window, standardized over the training people, then one hidden layer."""

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from cluster.inventory.fields import Choice
from cluster.lazy import np, tf
from cluster.models.layers import Dense, Dropout
from cluster.models.network import BuiltIn, Output, Parameter, Problem, Tensors, constant
from cluster.models.window_statistics import AXES, WindowStatistics, sensors
from cluster.parameters import Vector

FARTHEST = 8.0
"""Standard deviations from the mean beyond which a statistic says nothing more."""
CONSTANT = 1e-6
"""A statistic that varies less than this over the training windows is not scaled."""


@dataclass(frozen=True)
class StandardizedStatistics:
    """The statistics of standardized windows, each less its mean and over its deviation over the training windows.

    The figures for that are untrained parameters: `scale` and `shift` (channels,) undo the standardization of the
    channels, up to one scale for each sensor; `mean` and `deviation` are (statistics,). `measured` fills them in before
    the first update. They then stay as they are: every batch hands back what it found.
    """

    name: str
    problem: Problem

    @property
    def function(self) -> WindowStatistics:
        """The function of the windows."""
        return WindowStatistics(self.problem.window_steps, self.problem.channels)

    def parameters(self) -> list[Parameter]:
        """Four untrained ones."""
        channels, count = (self.problem.channels,), (self.function.count,)
        starts = (("scale", channels, 1.0), ("shift", channels, 0.0), ("mean", count, 0.0), ("deviation", count, 1.0))
        return [
            Parameter(f"{self.name}/{name}", shape, trained=False, decayed=False, initial=constant(value))
            for name, shape, value in starts
        ]

    def __call__(self, parameters: Tensors, windows: tf.Tensor) -> tf.Tensor:
        """Float32 (batch, statistics) from standardized windows (batch, steps, channels)."""
        found = self.function(
            windows * parameters[f"{self.name}/scale"] + parameters[f"{self.name}/shift"]
        )  # fmt: skip
        found = (found - parameters[f"{self.name}/mean"]) / parameters[f"{self.name}/deviation"]
        # The tail is a part of the vector that is differentiated: without this, so were every statistic.
        return tf.stop_gradient(tf.clip_by_value(found, -FARTHEST, FARTHEST))

    def kept(self, parameters: Tensors) -> dict[str, tf.Tensor]:
        """What a batch in training hands back: the untrained parameters as they are."""
        return {spec.name: parameters[spec.name] for spec in self.parameters()}

    def measured(self, standardization: Any, windows: Iterable[Any]) -> dict[str, Any]:
        """The untrained parameters by name, from the training windows in blocks (n, steps, channels).

        `standardization`, float32 (2, channels), is the mean and deviation with which the windows were standardized.
        The sums are float64 in the order of the windows: the same bits for any cluster.
        """
        mean, deviation = (np.asarray(row, np.float64) for row in standardization)
        of_sensor = deviation
        if count := sensors(self.problem.channels):
            of_sensor = np.repeat(np.sqrt(np.square(deviation).reshape(count, AXES).mean(1)), AXES)
        scale, shift = ((values / of_sensor).astype(np.float32) for values in (deviation, mean))
        traced = _traced(self.function)
        total, squares, rows = np.zeros(self.function.count), np.zeros(self.function.count), 0
        for block in windows:
            found = traced(tf.constant(block, tf.float32), scale, shift).numpy().astype(np.float64)
            total, squares, rows = total + found.sum(0), squares + np.square(found).sum(0), rows + len(found)
        average = total / rows
        spread = np.sqrt(np.maximum(squares / rows - np.square(average), 0.0))
        spread = np.where(spread < CONSTANT, 1.0, spread)
        fitted: dict[str, Any] = {"scale": scale, "shift": shift, "mean": average, "deviation": spread}
        return {f"{self.name}/{name}": values.astype(np.float32) for name, values in fitted.items()}


@functools.cache
def _traced(statistics: WindowStatistics) -> Any:
    """The statistics of blocks of any number of windows; traced once a process, however many fits measure."""
    steps, channels = statistics.steps, statistics.channels
    specs = [tf.TensorSpec([None, steps, channels]), tf.TensorSpec([channels]), tf.TensorSpec([channels])]
    return tf.function(
        lambda windows, scale, shift: statistics(windows * scale + shift), input_signature=specs, autograph=False
    )


class SpectralModel(Choice):
    """Statistics and spectrum of each window, standardized over the training windows, then one hidden layer."""

    name: Literal["spectral"] = Field("spectral", description="which network this is")
    hidden: int = Field(64, ge=0, le=1024, description="units of the hidden layer; 0 is none, a linear model")
    dropout: float = Field(
        0.5, ge=0.0, lt=1.0, description="share of its units dropped in training, whatever keep_probability is"
    )


class MeasuredNetwork(BuiltIn):
    """A network with standardized statistics among its parts, which are measured before the first update."""

    statistics: StandardizedStatistics

    def measured(self, vector: Vector, standardization: Any, windows: Iterable[Any]) -> Vector:
        """See Network."""
        found = self.statistics.measured(standardization, windows)
        return self.layout.pack({**self.layout.unpack(vector), **found})


class Spectral(MeasuredNetwork):
    """Standardized statistics, a hidden layer with ReLU and dropout, a head."""

    name = "spectral"
    Options = SpectralModel

    @classmethod
    def widest_layer(cls, options: SpectralModel) -> int:
        """See ModelFacts."""
        return max(1, options.hidden)

    def __init__(self, config: SpectralModel, problem: Problem) -> None:
        self.statistics = StandardizedStatistics("statistics", problem)
        width = self.statistics.function.count
        self._hidden = [Dense("hidden", width, config.hidden)] if config.hidden else []
        self._head = Dense("head", config.hidden or width, problem.classes)
        self._dropout = Dropout(1.0 - config.dropout, site=0)
        super().__init__(config, problem, [self.statistics, *self._hidden, self._head])

    def apply(self, parameters: Tensors, windows: tf.Tensor, *, training: bool, seed: tf.Tensor) -> Output:
        """See `Network.apply`."""
        found = self.statistics(parameters, windows)
        for layer in self._hidden:
            found = self._dropout(tf.nn.relu(layer(parameters, found)), training=training, seed=seed)
        return Output(self._head(parameters, found), self.statistics.kept(parameters) if training else {})
