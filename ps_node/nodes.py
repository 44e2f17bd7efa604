"""What a step is made of: the nodes of its tree of sums, its penalty, its clipping.

They have the same bits on any number of workers and servers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from core.engine.codecs import Codec
from core.engine.codecs.fp32 import Fp32
from core.ground.lazy import tf
from core.parameters import STATISTICS_RATE, Layout, Vector
from ps_node.arithmetic import Arithmetic, TensorFlowArithmetic, either
from ps_node.shard import ShardOnServer


class Nodes:
    """Arithmetic of the reduction tree's nodes: [gradient | statistics].

    It rounds at every sum as on the wire.
    """

    def __init__(self, codec: Codec, trained_size: int, arithmetic: Arithmetic) -> None:
        """The first `trained_size` elements of a node are the gradient.

        Raises ValueError for a codec with a memory: the result would depend on which worker did
        what.
        """
        if not codec.stateless:
            raise ValueError(f"synchronous steps need a codec without memory, not {codec.name}")
        self._codec = codec
        self._size = trained_size
        self.arithmetic = arithmetic

    @property
    def exact(self) -> bool:
        """Whether the wire rounds nothing, so that a sum of sums needs none of its leaves."""
        return isinstance(self._codec, Fp32)

    def rounded(self, node: Any) -> Any:
        """A slot's contribution: rounded as on the wire, without negative zeros."""
        return self.arithmetic.rounded(node, self._size, self._codec)

    def total(self, nodes: Sequence[Any], present: Any = None, width: int | None = None) -> Any:
        """The sum of neighbouring nodes in the tree; those that are not `present` are zeros.

        Their shape says their `width`, where it is known.
        """
        width = width or nodes[0].shape[0]
        return self.arithmetic.total(nodes, present, width, self._size, self._codec)


@dataclass(frozen=True)
class Penalty:
    """The gradient of the loss's L2 term: `weight` times what decays of some parameters.

    It joins the gradient of a whole batch, once all slots are added up.
    """

    weight: float
    decayed: Vector

    @classmethod
    def for_elements(
        cls, weight: float, layout: Layout, trained: tuple[int, int] | None = None
    ) -> "Penalty":
        """Return that of elements [start, stop) of the trained vector, or of all."""
        return cls(weight, layout.decayed[slice(*(trained or (None,)))])

    def added(self, gradient: Any, parameters: Any, share: Any = 1.0) -> Any:
        """Return the gradient with the term's.

        `gradient` is still to be multiplied by `share`, which the term is not.
        """
        if not self.weight:
            return gradient
        return gradient + (self.weight / share) * (self.decayed * parameters)


def sent(node: Any, shard: ShardOnServer, layout: Layout) -> Any:
    """A shard's part of a node of the whole vector as it travels."""
    begin, end = shard.shard.statistics
    gradient = node[slice(*shard.shard.trained)]
    nothing = tf.zeros([0, shard.trained_size])
    statistics = node[layout.trained_size + begin : layout.trained_size + end]
    return tf.concat([shard.wire.push.encode(gradient, nothing)[0], statistics], 0)


def arrived(part: Any, shard: ShardOnServer) -> Any:
    """A shard's node of what `sent` sends."""
    encoded_words = shard.wire.push.words(shard.trained_size)
    return tf.concat(
        [shard.wire.push.decode(part[:encoded_words], shard.trained_size), part[encoded_words:]], 0
    )


def step_applied(shard: ShardOnServer, total: Any, scale: Any, share: Any, rate: Any) -> Any:
    """Return the op that applies a shard's part of a step's sum.

    The gradient is multiplied by `scale`, the statistics by `share`.

    A `scale` of 0 means that the total is not usable.
    """
    usable = scale > 0.0
    scaled = total[: shard.trained_size] * scale
    gradient = either(usable, scaled, tf.zeros_like(scaled))
    if shard.statistics is not None:
        previous = shard.statistics.read_value()
    else:
        previous = tf.zeros([0])
    statistics = either(usable, total[shard.trained_size :] * share, previous)
    with tf.control_dependencies(shard.applied(gradient, rate, statistics, STATISTICS_RATE)):
        return shard.count(1, 0)


def clipped(total_norm: Any, share: Any, clip_norm: float | None) -> tuple[Any, Any]:
    """The norm of a total times `share`, and the factor of the total: 0 if it is not finite."""
    norm = total_norm * share
    if clip_norm is None:
        scale = share
    else:
        scale = share * (clip_norm / tf.maximum(norm, clip_norm))
    return norm, tf.where(tf.math.is_finite(norm), scale, 0.0)


@dataclass(frozen=True)
class StepRecipe:
    """How a step is made: of how many slots, cut to which norm, with which weight of the L2 term.

    Without a `clip_norm` no gradient is cut.
    """

    slots: int
    clip_norm: float | None = None
    l2: float = 0.0
    arithmetic: Arithmetic = field(default_factory=TensorFlowArithmetic)
    logs: bool = False
    """Whether the shards keep the figures of steps, for workers that do several in a call."""
