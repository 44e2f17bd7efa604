"""`dblstm`: Kimm's network: bi-LSTM, bi-LSTM, an LSTM of half the units, a head on its last step.

618,118 parameters at its default on nine channels and six classes, layer by layer Kimm's own
figures (`kimm-layers` in `experiments/tables/papers/`).
"""

from typing import Literal

from pydantic import Field

from core.inventory.fields import RecurrentChoice
from core.models.layers import BidirectionalLstm, Dropout, InstanceNorm, Lstm, Product
from core.models.network import BuiltIn, Problem
from core.models.operations import Operations, Tensor

ALL_LAYERS = 3


class DeepBidirectionalModel(RecurrentChoice):
    """Two bi-LSTM layers of `units` each way, then one LSTM of half as many.

    The network has the first `layers` of these three.
    """

    name: Literal["dblstm"] = Field("dblstm", description="which network this is")
    units: int = Field(
        128,
        ge=8,
        le=256,
        multiple_of=2,
        description="of each direction of a bi-LSTM layer; the third layer has half",
    )
    layers: int = Field(
        ALL_LAYERS,
        ge=1,
        le=ALL_LAYERS,
        description="how many of the three layers there are: the first one, two or all",
    )


class DeepBidirectional(BuiltIn):
    """The head reads the state each direction of the last layer ends in."""

    name = "dblstm"
    Options = DeepBidirectionalModel

    @classmethod
    def widest_layer(cls, options: DeepBidirectionalModel) -> int:
        """Count the units of the widest layer."""
        return 2 * options.units

    def __init__(self, config: DeepBidirectionalModel, problem: Problem) -> None:
        units = config.units
        both = 2 * config.units
        self._normed = InstanceNorm(config.instance_norm, problem)
        self._units = units
        self._ends_bidirectional = config.layers < ALL_LAYERS
        all_layers: list[BidirectionalLstm | Lstm] = [
            BidirectionalLstm("layer0", self._normed.problem.channels, units),
            BidirectionalLstm("layer1", both, units),
            Lstm("layer2", both, units // 2),
        ]
        self._layers = all_layers[: config.layers]
        self._head = Product(
            "head", both if self._ends_bidirectional else units // 2, problem.classes
        )
        self._dropouts = [
            Dropout(problem.keep_probability, site=k) for k in range(len(self._layers))
        ]
        super().__init__(config, problem, [*self._layers, self._head])

    def logits(self, ops: Operations, windows: Tensor) -> Tensor:
        """Write the network."""
        hidden = ops.sequence(self._normed(ops, windows))
        for layer, dropout in zip(self._layers, self._dropouts, strict=True):
            hidden = dropout(ops, layer(ops, hidden))
        if self._ends_bidirectional:
            return self._head(ops, ops.ends(hidden, self._units))
        return self._head(ops, ops.at(hidden, -1))
