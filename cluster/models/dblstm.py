"""`dblstm`: two bi-LSTM layers of 128 units a direction, an LSTM of 64, a head on its last step.

618,118 parameters on nine channels and six classes with Keras's LSTM conventions, as Kimm's network has.
"""

from typing import Literal

from pydantic import Field

from cluster.inventory.fields import Choice
from cluster.lazy import tf
from cluster.models.layers import BidirectionalLstm, Dense, Dropout, Lstm
from cluster.models.network import BuiltIn, Output, Problem, Tensors

WIDE, NARROW = 128, 64


class DeepBidirectionalModel(Choice):
    """Two bi-LSTM layers of 128 units each way, one LSTM of 64: exactly 618,118 parameters on nine channels."""

    name: Literal["dblstm"] = Field("dblstm", description="which network this is")


class DeepBidirectional(BuiltIn):
    """Fixed widths: only the shape of the windows varies."""

    name = "dblstm"
    Options = DeepBidirectionalModel

    @classmethod
    def widest_layer(cls, options: DeepBidirectionalModel) -> int:
        """See ModelFacts."""
        return 2 * WIDE

    def __init__(self, config: DeepBidirectionalModel, problem: Problem) -> None:
        self._layers: list[BidirectionalLstm | Lstm] = [
            BidirectionalLstm("layer0", problem.channels, WIDE),
            BidirectionalLstm("layer1", 2 * WIDE, WIDE),
            Lstm("layer2", 2 * WIDE, NARROW),
        ]
        self._head = Dense("head", NARROW, problem.classes)
        self._dropouts = [Dropout(problem.keep_probability, site=k) for k in range(len(self._layers))]
        super().__init__(config, problem, [*self._layers, self._head])

    def apply(self, parameters: Tensors, windows: tf.Tensor, *, training: bool, seed: tf.Tensor) -> Output:
        """See `Network.apply`."""
        hidden = tf.transpose(windows, [1, 0, 2])
        for layer, dropout in zip(self._layers, self._dropouts, strict=True):
            hidden = dropout(layer(parameters, hidden), training=training, seed=seed)
        return Output(self._head(parameters, hidden[-1]))
