"""`optimizer: lamb`: Adam's direction at the pace of each layer's weights, for large batches."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

from pydantic import Field

from core.ground.lazy import tf
from core.inventory.fields import OptimizerOptions, PositiveFloat
from core.parameters import BLOCK, Layout
from ps_node.optimizers import Optimizer, WeightDecay, tensors_within
from ps_node.optimizers.adam import Adam, Beta1, Beta2, Epsilon


class LambOptions(OptimizerOptions):
    """LAMB (https://arxiv.org/abs/1904.00962): for the large batches of many workers."""

    name: Literal["lamb"] = Field("lamb", description="which optimizer this is")
    learning_rate: PositiveFloat = Field(
        0.02, description="step size; with one_cycle the highest one"
    )
    beta_1: Beta1 = 0.9
    beta_2: Beta2 = 0.999
    epsilon: Epsilon = 1e-6
    weight_decay: WeightDecay = 0.01


@dataclass(frozen=True)
class Lamb(Optimizer):
    """LAMB (You et al., arXiv 1904.00962, algorithm 2), whose phi is the identity.

    A layer is what lies of a tensor in one block of 1,024 elements. Shard borders lie on block
    borders: a norm needs no other shard, and no number of servers changes a bit. Biases and
    normalization take Adam's steps, without decay, as in the authors' code.
    """

    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-6
    weight_decay: float = 0.01
    layers: tuple[tuple[int, bool], ...] = ()
    """Sizes, and whether they decay and have a pace of their own, in order."""

    name = "lamb"
    Options: ClassVar[type[OptimizerOptions]] = LambOptions

    @property
    def slot_names(self) -> tuple[str, ...]:
        """Name Adam's."""
        return self.adam.slot_names

    @property
    def adam(self) -> Adam:
        """What gives the direction."""
        return Adam(beta_1=self.beta_1, beta_2=self.beta_2, epsilon=self.epsilon)

    def within(self, layout: Layout, trained: tuple[int, int]) -> Self:
        """Cut elements [start, stop) into layers."""
        start, stop = trained
        layers: list[tuple[int, bool]] = []
        for begin in range(start, stop, BLOCK):
            layers += tensors_within(layout, (begin, min(begin + BLOCK, stop)))
        return replace(self, layers=tuple(layers))

    def stepped(
        self, parameters: Any, slots: Any, gradient: Any, rate: Any, count: Any
    ) -> tuple[Any, Any]:
        """One step on tensors."""
        nowhere = tf.zeros_like(parameters)
        moved, slots = self.adam.stepped(nowhere, slots, gradient, tf.constant(1.0), count)
        return self.paced(parameters, moved, rate, _squares), slots

    def paced(self, parameters: Any, moved: Any, rate: Any, squares: Callable[[Any], Any]) -> Any:
        """`parameters` (n,) after `rate` times Adam's step `moved`, each layer at its pace.

        `squares` sums those of each row of (layers, BLOCK). Roots and quotients are float64's.
        """
        sizes = tf.constant([size for size, _ in self.layers], tf.int64)
        decayed = tf.constant([decays for _, decays in self.layers])

        def length(values: Any) -> Any:
            rows = tf.RaggedTensor.from_row_lengths(values, sizes, validate=False)
            padded = rows.to_tensor(shape=[len(self.layers), BLOCK])
            return tf.sqrt(tf.cast(squares(padded), tf.float64))

        layer = tf.repeat(tf.range(len(self.layers)), sizes)
        decay = tf.gather(tf.where(decayed, self.weight_decay, 0.0), layer)
        step = moved - decay * parameters
        weights = length(parameters)
        steps = length(step)
        paced = decayed & (weights > 0.0) & (steps > 0.0)
        pace = tf.where(paced, weights / tf.where(paced, steps, 1.0), 1.0)
        return parameters + rate * tf.gather(tf.cast(pace, tf.float32), layer) * step


def _squares(rows: Any) -> Any:
    return tf.reduce_sum(tf.square(rows), 1)
