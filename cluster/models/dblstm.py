"""`dblstm`: Kimm's network: bi-LSTM, bi-LSTM, an LSTM of half the units, a head on its last step.

618,118 parameters at its default on nine channels and six classes, layer by layer Kimm's own figures
(`kimm-layers` in `cluster/references/`).
"""

from typing import Literal

from pydantic import Field

from cluster.inventory.fields import RecurrentChoice
from cluster.lazy import tf
from cluster.models.instance_norm import InstanceNorm
from cluster.models.layers import BidirectionalLstm, Dense, Dropout, Lstm
from cluster.models.network import BuiltIn, Output, Problem, Tensors

ALL_LAYERS = 3


class DeepBidirectionalModel(RecurrentChoice):
    """Two bi-LSTM layers of `units` each way, then one LSTM of half as many; the first `layers` of these three."""

    name: Literal["dblstm"] = Field("dblstm", description="which network this is")
    units: int = Field(
        128, ge=8, le=256, multiple_of=2, description="of each direction of a bi-LSTM layer; the third layer has half"
    )
    layers: int = Field(
        ALL_LAYERS, ge=1, le=ALL_LAYERS, description="how many of the three layers there are: the first one, two or all"
    )


class DeepBidirectional(BuiltIn):
    """The head reads the state each direction of the last layer ends in."""

    name = "dblstm"
    Options = DeepBidirectionalModel

    @classmethod
    def widest_layer(cls, options: DeepBidirectionalModel) -> int:
        """See ModelFacts."""
        return 2 * options.units

    def __init__(self, config: DeepBidirectionalModel, problem: Problem) -> None:
        units, both = config.units, 2 * config.units
        self._normed = InstanceNorm(config.instance_norm, problem)
        self._units, self._ends_bidirectional = units, config.layers < ALL_LAYERS
        all_layers: list[BidirectionalLstm | Lstm] = [
            BidirectionalLstm("layer0", self._normed.problem.channels, units),
            BidirectionalLstm("layer1", both, units),
            Lstm("layer2", both, units // 2),
        ]
        self._layers = all_layers[: config.layers]
        self._head = Dense("head", both if self._ends_bidirectional else units // 2, problem.classes)
        self._dropouts = [Dropout(problem.keep_probability, site=k) for k in range(len(self._layers))]
        super().__init__(config, problem, [*self._layers, self._head])

    def apply(self, parameters: Tensors, windows: tf.Tensor, *, training: bool, seed: tf.Tensor) -> Output:
        """See `Network.apply`."""
        hidden = tf.transpose(self._normed(windows), [1, 0, 2])
        for layer, dropout in zip(self._layers, self._dropouts, strict=True):
            hidden = dropout(layer(parameters, hidden), training=training, seed=seed)
        return Output(self._head(parameters, self._ends(hidden)))

    def _ends(self, hidden: tf.Tensor) -> tf.Tensor:
        """Where each direction ends, as Keras's `Bidirectional` without sequences hands it on."""
        if not self._ends_bidirectional:
            return hidden[-1]
        return tf.concat([hidden[-1, :, : self._units], hidden[0, :, self._units :]], 1)
