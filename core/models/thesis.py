"""The thesis's family: per layer parallel cells, a projection with ReLU and an LSTM, summed.

After the public code the thesis builds on, HAR-stacked-residual-bidir-LSTMs;
`experiments/pages/tables-thesis.md` lists where this deviates from it and why.
"""

from dataclasses import dataclass
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from core.inventory.fields import RecurrentChoice
from core.models.layers import Dropout, InstanceNorm, Lstm, Product, StepBatchNorm
from core.models.network import BuiltIn, Parameter, Parametrized, Problem
from core.models.operations import FEATURES, Operations, Tensor


class Direction:
    """One direction: a projection of the features to `hidden` with ReLU, then an LSTM."""

    def __init__(
        self, name: str, features: int, hidden: int, bias: float, backward: bool = False
    ) -> None:
        self._projection = Product(f"{name}/projection", features, hidden, bias)
        self._lstm = Lstm(f"{name}/lstm", hidden, hidden, backward)

    def parameters(self) -> list[Parameter]:
        """List the projection's, then the LSTM's."""
        return [*self._projection.parameters(), *self._lstm.parameters()]

    def __call__(self, ops: Operations, sequence: Tensor) -> Tensor:
        """Return a sequence of `hidden` features."""
        return self._lstm(ops, ops.unary("relu", self._projection(ops, sequence)))


@dataclass(frozen=True)
class Layer:
    """Parallel residual cells over one input, summed.

    A bidirectional cell is two directions side by side.
    """

    name: str
    residual_cells: tuple[tuple[Direction, ...], ...]
    norm: StepBatchNorm | None

    def parameters(self) -> list[Parameter]:
        """List the cells' in order, then the normalization's."""
        sublayers: list[Parametrized] = [
            cell for directions in self.residual_cells for cell in directions
        ]
        if self.norm:
            sublayers.append(self.norm)
        return [parameter for sublayer in sublayers for parameter in sublayer.parameters()]

    def __call__(self, ops: Operations, sequence: Tensor) -> Tensor:
        """Return a sequence as wide as the directions of a cell together."""
        outputs = []
        for directions in self.residual_cells:
            direction_outputs = [direction(ops, sequence) for direction in directions]
            outputs.append(
                ops.concat(direction_outputs, FEATURES)
                if len(direction_outputs) > 1
                else direction_outputs[0]
            )
        summed = ops.add_n(outputs)
        if self.norm:
            return self.norm(ops, summed)
        return summed


class ThesisModel(RecurrentChoice):
    """The thesis's family: stacked LSTM layers, each behind a projection with ReLU.

    Residual cells are optional.
    """

    name: Literal["thesis"] = Field("thesis", description="which network this is")
    n_layers_in_highway: int = Field(
        0, ge=0, le=8, description="residual cells summed within each layer; 0 is plain"
    )
    n_stacked_layers: int = Field(3, ge=1, le=8, description="layers on top of each other")
    bidirectional: bool = Field(False, description="read each window forwards and backwards")
    hidden: int = Field(
        32, ge=8, le=256, description="width of each layer; a bidirectional one gives each way half"
    )
    batch_norm: bool = Field(
        False, description="normalize each time step over batch and features after each layer"
    )
    bias_mean: float = Field(
        0.3, ge=-10, le=10, description="mean of the initial biases of the projections"
    )

    @field_validator("hidden")
    @classmethod
    def _can_be_halved(cls, hidden: int, info: ValidationInfo) -> int:
        if hidden % 2 and info.data.get("bidirectional"):
            raise PydanticCustomError(
                "even",
                "a bidirectional layer gives each way half of an even number",
                {"remedy": f"write {hidden + 1}"},
            )
        return hidden


class Thesis(BuiltIn):
    """`n_stacked_layers` layers, `hidden` wide; the head reads the state each direction ends in."""

    name = "thesis"
    Options = ThesisModel

    @classmethod
    def widest_layer(cls, options: ThesisModel) -> int:
        """Count the units of the widest layer."""
        if options.bidirectional:
            return 2 * options.hidden
        return options.hidden

    def __init__(self, config: ThesisModel, problem: Problem) -> None:
        self._bidirectional = config.bidirectional
        self._width = config.hidden
        self._normed = InstanceNorm(config.instance_norm, problem)
        self._layers = [
            _layer(config, self._normed.problem, k) for k in range(config.n_stacked_layers)
        ]
        self._head = Product("head", config.hidden, problem.classes)
        self._input_dropout = Dropout(problem.keep_probability, site=0)
        self._head_dropout = Dropout(problem.keep_probability, site=1)
        super().__init__(config, problem, [*self._layers, self._head])

    def logits(self, ops: Operations, windows: Tensor) -> Tensor:
        """Write the network."""
        hidden = ops.sequence(self._input_dropout(ops, self._normed(ops, windows)))
        for layer in self._layers:
            hidden = layer(ops, hidden)
        if self._bidirectional:
            ends = ops.ends(hidden, self._width // 2)
        else:
            ends = ops.at(hidden, -1)
        return self._head(ops, self._head_dropout(ops, ends))


def _layer(config: ThesisModel, problem: Problem, index: int) -> Layer:
    name = f"layer{index}"
    features = config.hidden if index else problem.channels
    width = config.hidden
    ways = [("", False)]
    if config.bidirectional:
        width = config.hidden // 2
        ways = [("/forward", False), ("/backward", True)]
    cells = tuple(
        tuple(
            Direction(f"{name}/cell{cell}{way}", features, width, config.bias_mean, backward)
            for way, backward in ways
        )
        for cell in range(max(1, config.n_layers_in_highway))
    )
    if config.batch_norm:
        norm = StepBatchNorm(f"{name}/norm", problem.window_steps)
    else:
        norm = None
    return Layer(name, cells, norm)
