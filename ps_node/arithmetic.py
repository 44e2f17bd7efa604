"""Sums, norms and updates of vectors: by TensorFlow, or by the library with bits of its own.

`core.models.native` has the library's arithmetic of networks.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from operator import add
from typing import Any

from core.consistency import tree_sum
from core.engine.codecs import Codec
from core.engine.codecs.fp16 import Fp16
from core.engine.codecs.fp32 import Fp32
from core.ground.lazy import tf
from core.inventory.slots import LIBRARY, ArithmeticSetting
from core.parameters import BLOCK, Layout
from kernels.library import operations
from ps_node.optimizers import DecayingOptimizer, Optimizer
from ps_node.optimizers.adagrad import Adagrad
from ps_node.optimizers.adam import Adam
from ps_node.optimizers.lamb import Lamb
from ps_node.optimizers.lion import Lion
from ps_node.optimizers.rmsprop import RMSprop
from ps_node.optimizers.sgd import MomentumSGD


class Arithmetic(ABC):
    """What is computed of gradients and parameters once a network's part is done."""

    @abstractmethod
    def keeps_rows(self, codec: Codec) -> bool:
        """Return whether a row that no node has come for must have the shape of one."""

    @abstractmethod
    def total(
        self, leaves: Sequence[Any], present: Any | None, width: int, trained: int, codec: Codec
    ) -> Any:
        """Add up nodes [trained | statistics] of `width` in the tree; absent ones count as zeros.

        `present` has a bool for each leaf; None says that all are there. The first `trained`
        elements of each sum are rounded as `codec` rounds them on the wire.
        """

    @abstractmethod
    def rounded(self, node: Any, trained: int, codec: Codec) -> Any:
        """Round a node as on the wire, without negative zeros.

        A missing part counts as +0.0, and x + 0.0 has the bits of x for every x but -0.0.
        """

    @abstractmethod
    def block_squares(self, vector: Any, size: int) -> Any:
        """Return the sums of squares of blocks of 1,024 of `size` elements, float32 [blocks]."""

    @abstractmethod
    def norm(self, squares: Any) -> Any:
        """Return the root of the sum of what `block_squares` returns, in an order of its own."""

    @abstractmethod
    def optimizer(self, of: Optimizer) -> Optimizer:
        """Return the optimizer as this arithmetic computes it."""


class TensorFlowArithmetic(Arithmetic):
    """TensorFlow's operations: the last bits are those of a kind of processor."""

    def keeps_rows(self, codec: Codec) -> bool:
        """Return that it must."""
        return True

    def total(
        self, leaves: Sequence[Any], present: Any | None, width: int, trained: int, codec: Codec
    ) -> Any:
        """Add up in the tree: without a rounding codec one operation a sum, else one a level."""
        if not isinstance(codec, Fp32):
            rows = tf.stack(leaves)
            if present is not None:
                rows = tf.where(present[:, tf.newaxis], rows, 0.0)
            return _sum_of_levels(tf.ensure_shape(rows, [len(leaves), width]), trained, codec)
        if present is not None:
            zeros = tf.zeros_like(leaves[0])
            leaves = [
                either(is_present, leaf, zeros)
                for leaf, is_present in zip(leaves, tf.unstack(present, len(leaves)), strict=True)
            ]
        return tree_sum(leaves, add)

    def rounded(self, node: Any, trained: int, codec: Codec) -> Any:
        """Encode and decode the gradient."""
        return _rounded(node[tf.newaxis], trained, codec)[0]

    def block_squares(self, vector: Any, size: int) -> Any:
        """Fill the last block up with zeros."""
        padded = tf.pad(vector, [[0, -size % BLOCK]])
        return tf.reduce_sum(tf.square(tf.reshape(padded, [-1, BLOCK])), 1)

    def norm(self, squares: Any) -> Any:
        """Sum as TensorFlow does."""
        return tf.sqrt(tf.reduce_sum(squares))

    def optimizer(self, of: Optimizer) -> Optimizer:
        """Return it as it is."""
        return of


def _rounded(rows: Any, trained: int, codec: Codec) -> Any:
    """Return nodes (n, width) as on the wire: all rows at once, each from a block's border on."""
    flat = tf.reshape(tf.pad(rows[:, :trained], [[0, 0], [0, -trained % BLOCK]]), [-1])
    size = flat.shape[0]
    decoded = codec.decode(codec.encode(flat, tf.zeros([0, size]))[0], size)
    gradients = tf.reshape(decoded, [rows.shape[0], trained + -trained % BLOCK])[:, :trained]
    return tf.concat([gradients, rows[:, trained:]], 1) + 0.0


def _sum_of_levels(rows: Any, trained: int, codec: Codec) -> Any:
    """Return the sum of nodes (n, width) in the tree of `tree_sum`, rounded at every node.

    A row without a neighbour is rounded already.
    """
    rows = _rounded(rows, trained, codec)
    while rows.shape[0] > 1:
        paired = rows.shape[0] // 2 * 2
        sums = _rounded(rows[0:paired:2] + rows[1:paired:2], trained, codec)
        rows = tf.concat([sums, rows[paired:]], 0)
    return rows[0]


class LibraryArithmetic(Arithmetic):
    """The library's operations: the same bits on every processor.

    Where the library does not know the codec, TensorFlow rounds and adds, element by element: with
    the same bits everywhere too.
    """

    def keeps_rows(self, codec: Codec) -> bool:
        """Return whether TensorFlow adds up."""
        return not isinstance(codec, (Fp32, Fp16))

    def total(
        self, leaves: Sequence[Any], present: Any | None, width: int, trained: int, codec: Codec
    ) -> Any:
        """Add up in one operation, which does not read what is absent."""
        if self.keeps_rows(codec):
            return TensorFlowArithmetic().total(leaves, present, width, trained, codec)
        if present is None:
            mask = tf.ones([len(leaves)])
        else:
            mask = tf.cast(present, tf.float32)
        node = operations().pscluster_node(
            leaves=leaves, present=mask, settings=[trained, width, int(isinstance(codec, Fp16))]
        )
        return tf.ensure_shape(node, [width])

    def rounded(self, node: Any, trained: int, codec: Codec) -> Any:
        """Round by the same operation."""
        return self.total([node], None, node.shape[0], trained, codec)

    def block_squares(self, vector: Any, size: int) -> Any:
        """Sum each block in a fixed order."""
        squares = operations().pscluster_squares(vector=vector)
        return tf.ensure_shape(squares, [-(-size // BLOCK)])

    def norm(self, squares: Any) -> Any:
        """Sum in a fixed tree."""
        return tf.ensure_shape(operations().pscluster_norm(squares=squares), [])

    def optimizer(self, of: Optimizer) -> Optimizer:
        """Return one with the same slots, which steps by the library."""
        return LibraryOptimizer(of)


def arithmetic_of(name: ArithmeticSetting) -> Arithmetic:
    """Return the arithmetic of a job; until it is chosen, TensorFlow's."""
    if name == LIBRARY:
        return LibraryArithmetic()
    return TensorFlowArithmetic()


def either(condition: Any, value: Any, other: Any) -> Any:
    """`value` or `other`, of the same shape, as the scalar `condition` says.

    `tf.where` broadcasts the condition one element at a time: ten times the time of this copy
    (measured).
    """
    return tf.raw_ops.Select(condition=condition, x=value, y=other)


@dataclass(frozen=True)
class LibraryOptimizer(Optimizer):
    """An optimizer whose steps the library computes."""

    of_tensorflow: Optimizer

    @classmethod
    def knows(cls, optimizer: Optimizer) -> bool:
        """Return whether the library has such steps."""
        return _numbers(optimizer) is not None

    @property
    def slot_names(self) -> tuple[str, ...]:
        """Name those of the optimizer that it stands for."""
        return self.of_tensorflow.slot_names

    def within(self, layout: Layout, trained: tuple[int, int]) -> "LibraryOptimizer":
        """Have weight decay look up its elements."""
        return LibraryOptimizer(self.of_tensorflow.within(layout, trained))

    def stepped(
        self, parameters: Any, slots: Any, gradient: Any, rate: Any, count: Any
    ) -> tuple[Any, Any]:
        """One step by the library."""
        inner = self.of_tensorflow
        if isinstance(inner, Lamb):
            by_library = LibraryOptimizer(inner.adam)
            nowhere = tf.zeros_like(parameters)
            moved, slots = by_library.stepped(nowhere, slots, gradient, 1.0, count)
            return inner.paced(parameters, moved, rate, _squares_of_rows), slots
        if isinstance(inner, DecayingOptimizer) and inner.weight_decay:
            parameters = inner.shrunk(parameters, rate)
        step = _numbers(inner)
        assert step is not None, inner
        code, numbers = step
        halves = tf.bitcast(tf.cast(count, tf.int64), tf.int32)
        new, moved = operations().pscluster_update(
            parameters=parameters,
            slots=slots,
            gradient=gradient,
            settings=tf.concat([[code], halves], 0),
            numbers=tf.concat([[rate], numbers], 0),
        )
        size = gradient.shape[0]
        return tf.ensure_shape(new, [size]), tf.ensure_shape(moved, [len(self.slot_names), size])


def _squares_of_rows(rows: Any) -> Any:
    squares = operations().pscluster_squares(vector=tf.reshape(rows, [-1]))
    return tf.ensure_shape(squares, [rows.shape[0]])


def _numbers(optimizer: Optimizer) -> tuple[int, tuple[float, float, float]] | None:
    """Return the library's code of an optimizer, and what its steps read (`native/updates.h`).

    None for one that the library does not know.
    """
    match optimizer:
        case Lamb(adam=adam):
            return _numbers(adam)
        case MomentumSGD(momentum=momentum, nesterov=nesterov):
            return 0, (momentum, float(nesterov), 0.0)
        case Adam(beta_1=first, beta_2=second, epsilon=epsilon):
            return 1, (first, second, epsilon)
        case Adagrad(epsilon=epsilon):
            return 2, (epsilon, 0.0, 0.0)
        case RMSprop(rho=rho, momentum=momentum, epsilon=epsilon):
            return 3, (rho, momentum, epsilon)
        case Lion(beta_1=first, beta_2=second):
            return 4, (first, second, 0.0)
    return None
