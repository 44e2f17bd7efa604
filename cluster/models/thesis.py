"""The thesis's family: per layer one or several parallel cells, each a projection with ReLU and then an LSTM, summed.

After the public code the thesis builds on, HAR-stacked-residual-bidir-LSTMs; `docs/models.md` lists where this
deviates from it and why.
"""

from dataclasses import dataclass
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from cluster.inventory.fields import RecurrentChoice
from cluster.lazy import tf
from cluster.models.instance_norm import InstanceNorm
from cluster.models.layers import Dense, Dropout, Lstm, StepBatchNorm
from cluster.models.network import BuiltIn, Output, Parameter, Part, Problem, Tensors


class Direction:
    """One direction: a projection of the features to `hidden` with ReLU, then an LSTM of `hidden` units."""

    def __init__(self, name: str, features: int, hidden: int, bias: float, backward: bool = False) -> None:
        self._projection = Dense(f"{name}/projection", features, hidden, bias)
        self._lstm = Lstm(f"{name}/lstm", hidden, hidden, backward)

    def parameters(self) -> list[Parameter]:
        """Those of the projection, then those of the LSTM."""
        return [*self._projection.parameters(), *self._lstm.parameters()]

    def __call__(self, parameters: Tensors, inputs: tf.Tensor) -> tf.Tensor:
        """Shape (steps, batch, hidden) from (steps, batch, features)."""
        return self._lstm(parameters, tf.nn.relu(self._projection(parameters, inputs)))


@dataclass(frozen=True)
class Layer:
    """Parallel residual cells over the same inputs, summed; a bidirectional one is two cells side by side."""

    name: str
    residual_cells: tuple[tuple[Direction, ...], ...]
    norm: StepBatchNorm | None

    def parameters(self) -> list[Parameter]:
        """Those of the cells in order, then those of the normalization."""
        parts: list[Part] = [cell for directions in self.residual_cells for cell in directions]
        if self.norm:
            parts.append(self.norm)
        return [parameter for part in parts for parameter in part.parameters()]

    def __call__(
        self, parameters: Tensors, inputs: tf.Tensor, *, training: bool
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Shape (steps, batch, hidden) from (steps, batch, features), and the batch's statistics."""
        outputs = tf.add_n(
            [tf.concat([cell(parameters, inputs) for cell in directions], 2) for directions in self.residual_cells]
        )
        return self.norm(parameters, outputs, training=training) if self.norm else (outputs, {})


class ThesisModel(RecurrentChoice):
    """The thesis's family: stacked LSTM layers, each behind a projection with ReLU, with optional residual cells."""

    name: Literal["thesis"] = Field("thesis", description="which network this is")
    n_layers_in_highway: int = Field(0, ge=0, le=8, description="residual cells summed within each layer; 0 is plain")
    n_stacked_layers: int = Field(3, ge=1, le=8, description="layers on top of each other")
    bidirectional: bool = Field(False, description="read each window forwards and backwards")
    hidden: int = Field(32, ge=8, le=256, description="width of each layer; a bidirectional one gives each way half")
    batch_norm: bool = Field(False, description="normalize each time step over batch and features after each layer")
    bias_mean: float = Field(0.3, ge=-10, le=10, description="mean of the initial biases of the projections")

    @field_validator("hidden")
    @classmethod
    def _can_be_halved(cls, hidden: int, known: ValidationInfo) -> int:
        if hidden % 2 and known.data.get("bidirectional"):
            raise PydanticCustomError(
                "even", "a bidirectional layer gives each way half of an even number", {"remedy": f"write {hidden + 1}"}
            )
        return hidden


class Thesis(BuiltIn):
    """`n_stacked_layers` layers, `hidden` wide; the head reads the state each direction ends in."""

    name = "thesis"
    Options = ThesisModel

    @classmethod
    def widest_layer(cls, options: ThesisModel) -> int:
        """See ModelFacts."""
        return 2 * options.hidden if options.bidirectional else options.hidden

    def __init__(self, config: ThesisModel, problem: Problem) -> None:
        self._bidirectional = config.bidirectional
        self._normed = InstanceNorm(config.instance_norm, problem)
        self._layers = [_layer(config, self._normed.problem, k) for k in range(config.n_stacked_layers)]
        self._head = Dense("head", config.hidden, problem.classes)
        self._input_dropout = Dropout(problem.keep_probability, site=0)
        self._head_dropout = Dropout(problem.keep_probability, site=1)
        super().__init__(config, problem, [*self._layers, self._head])

    def apply(self, parameters: Tensors, windows: tf.Tensor, *, training: bool, seed: tf.Tensor) -> Output:
        """See `Network.apply`."""
        hidden = self._input_dropout(self._normed(windows), training=training, seed=seed)
        hidden = tf.transpose(hidden, [1, 0, 2])
        statistics: dict[str, tf.Tensor] = {}
        for layer in self._layers:
            hidden, measured = layer(parameters, hidden, training=training)
            statistics.update(measured)
        ends = self._head_dropout(self._ends(hidden), training=training, seed=seed)
        return Output(self._head(parameters, ends), statistics)

    def _ends(self, hidden: tf.Tensor) -> tf.Tensor:
        if not self._bidirectional:
            return hidden[-1]
        half = hidden.shape[2] // 2
        return tf.concat([hidden[-1, :, :half], hidden[0, :, half:]], 1)


def _layer(config: ThesisModel, problem: Problem, index: int) -> Layer:
    name, features = f"layer{index}", config.hidden if index else problem.channels
    width, ways = config.hidden, [("", False)]
    if config.bidirectional:
        width, ways = config.hidden // 2, [("/forward", False), ("/backward", True)]
    cells = tuple(
        tuple(
            Direction(f"{name}/cell{cell}{way}", features, width, config.bias_mean, backward) for way, backward in ways
        )
        for cell in range(max(1, config.n_layers_in_highway))
    )
    norm = StepBatchNorm(f"{name}/norm", problem.window_steps) if config.batch_norm else None
    return Layer(name, cells, norm)
