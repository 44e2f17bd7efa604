"""What values look like while they travel between workers and parameter servers.

A codec turns `size` float32 values into `words(size)` float32 elements and back. Other types travel as the bits of
float32 elements, because one tensor a shard travels each way (docs/engine.md); no operation below computes with such an
element, so none changes its bits. All sizes are known when a function is traced. Equal input gives equal bits, whatever
the number of threads.
"""

import math
from dataclasses import dataclass
from typing import Any, Protocol

import cluster.engine.environment  # noqa: F401  (before tensorflow)
from cluster.parameters import BLOCK

import tensorflow as tf  # isort: skip

MAGNITUDE = 0x7FFFFFFF
"""The bits of a float32 without its sign. As integers they have the order of the absolute values."""

INFINITY = 0x7F800000
"""The bits of infinity: magnitudes from here on are not finite."""

TOP_EXPONENT = 14
"""A block's largest magnitude is scaled into [2^14, 2^15), the last binade in which no rounding overflows a half."""

SMALLEST_UNIT = 127 - 101
"""Biased exponent of the smallest unit, 2^-101: the smallest half times it is the normal number 2^-125, and every
denormal float32 divided by it rounds to zero. TensorFlow flushes denormals in some threads; so it cannot matter."""


class Codec(Protocol):
    """How values travel. Inherit from it: `stateless` comes along."""

    @property
    def name(self) -> str:
        """The name the inventory knows it by."""
        ...

    @property
    def memory_rows(self) -> int:
        """Rows of the float32 memory (memory_rows, size), at first zeros, that a sender keeps between its pushes."""
        ...

    @property
    def stateless(self) -> bool:
        """Nothing is kept: what travels depends on the values alone."""
        return self.memory_rows == 0

    def words(self, size: int) -> int:
        """Float32 elements on the wire for `size` values."""
        ...

    def encode(self, values: Any, memory: Any) -> tuple[Any, Any]:
        """Wire float32 (words(size),) and new memory, of values float32 (size,) and memory (memory_rows, size)."""
        ...

    def decode(self, wire: Any, size: int) -> Any:
        """Values float32 (size,) from wire float32 (words(size),)."""
        ...


@dataclass(frozen=True)
class Fp32(Codec):
    """The values themselves, every bit of them."""

    name = "fp32"
    memory_rows = 0

    def words(self, size: int) -> int:
        """One a value."""
        return size

    def encode(self, values: Any, memory: Any) -> tuple[Any, Any]:
        """The values."""
        return values, memory

    def decode(self, wire: Any, size: int) -> Any:
        """The values."""
        return tf.ensure_shape(wire, [size])


@dataclass(frozen=True)
class Fp16(Codec):
    """Halves (IEEE 754 binary16), in units of a power of two for each block of 1,024 values.

    The unit of a block brings its largest finite magnitude into [2^14, 2^15), so that neither large nor small values
    overflow or vanish; it is never below 2^-101. What is within 2^28 of the largest magnitude keeps eleven significant
    bits, what is smaller is rounded to a multiple of 2^-38 of that magnitude's power of two. Rounding is to nearest,
    ties to even. Signs stay, those of zeros too. Infinities and NaNs stay what they are (a NaN's payload may change)
    and do not influence their block; a magnitude of 2^128 - 2^116 or more rounds to infinity.

    A value rounded once is not changed by rounding it again. A block's bits depend on nothing but its values, so a
    vector cut at block borders gives the same ones.
    """

    name = "fp16"
    memory_rows = 0

    def words(self, size: int) -> int:
        """One for two values and one, the unit, for a block."""
        return -(-size // 2) + -(-size // BLOCK)

    def encode(self, values: Any, memory: Any) -> tuple[Any, Any]:
        """Halves, in pairs, then the units as float32."""
        size = values.shape[0]
        halves, units = _to_halves(values)
        pairs = tf.reshape(tf.reshape(halves, [-1])[: -(-size // 2) * 2], [-1, 2])
        return tf.concat([tf.bitcast(pairs, tf.float32), tf.reshape(units, [-1])], 0), memory

    def decode(self, wire: Any, size: int) -> Any:
        """Halves times their units, exactly."""
        pairs, units = tf.split(wire, [-(-size // 2), -(-size // BLOCK)])
        halves = tf.reshape(tf.bitcast(pairs, tf.float16), [-1])
        return _from_halves(_in_blocks(halves), units[:, tf.newaxis], size)

    def round(self, values: Any) -> Any:
        """What decoding the encoded `values`, float32 (size,), gives, bit for bit, without packing them."""
        return _from_halves(*_to_halves(values), values.shape[0])


@dataclass(frozen=True)
class TopK(Codec):
    """The largest values alone; the others are kept and added to the next: Deep Gradient Compression.

    Lin et al., arXiv 1712.01887, sections 3.1 to 3.3 without the clipping and the warm-up: with the memory's rows
    velocity u and residual v, u = momentum u + gradient, v = v + u; the share `density` of v with the largest
    magnitudes is sent, and u and v are zeroed there. Of equal magnitudes the first are sent. Without momentum v alone
    is kept. Values must be finite.

    The momentum replaces the optimizer's: it belongs to plain gradient descent on the parameter servers.
    """

    density: float
    momentum: float = 0.0

    name = "topk"

    @property
    def memory_rows(self) -> int:
        """The residual, and the velocity if there is momentum."""
        return 2 if self.momentum else 1

    def sent(self, size: int) -> int:
        """How many of `size` values are sent: at least one of them."""
        return math.ceil(self.density * size)

    def words(self, size: int) -> int:
        """A value and an index each."""
        return 2 * self.sent(size)

    def encode(self, values: Any, memory: Any) -> tuple[Any, Any]:
        """The largest accumulated values in falling order of magnitude, then their int32 indices."""
        velocity = self.momentum * memory[0] + values if self.momentum else values
        residual = memory[-1] + velocity
        indices = tf.math.top_k(tf.abs(residual), self.sent(values.shape[0])).indices
        largest = tf.gather(residual, indices)
        rows = [velocity, residual] if self.momentum else [residual]
        kept = [tf.tensor_scatter_nd_update(row, indices[:, tf.newaxis], tf.zeros_like(largest)) for row in rows]
        return tf.concat([largest, tf.bitcast(indices, tf.float32)], 0), tf.stack(kept)

    def decode(self, wire: Any, size: int) -> Any:
        """The sent values at their places, zeros elsewhere."""
        largest, indices = tf.split(wire, [self.sent(size)] * 2)
        places = tf.bitcast(indices, tf.int32)[:, tf.newaxis]
        return tf.tensor_scatter_nd_update(tf.zeros([size]), places, largest)


def _in_blocks(values: Any) -> Any:
    """(blocks, BLOCK) of (size,): zeros fill the last block."""
    size = values.shape[0]
    blocks = -(-size // BLOCK)
    return tf.reshape(tf.pad(values, [[0, blocks * BLOCK - size]]), [blocks, BLOCK])


def _to_halves(values: Any) -> tuple[Any, Any]:
    """Halves (blocks, BLOCK) and units float32 (blocks, 1) of float32 (size,)."""
    blocks = _in_blocks(values)
    magnitudes = tf.bitwise.bitwise_and(tf.bitcast(blocks, tf.int32), MAGNITUDE)
    largest = tf.reduce_max(tf.where(magnitudes < INFINITY, magnitudes, 0), 1, keepdims=True)
    # The exponent after rounding to eleven significant bits: were it that of the unrounded value, a value rounded up to
    # the next power of two would have another unit when it is rounded again, and small ones beside it would change.
    # (A tie below a power of two always goes up to it: the eleven bits before it are all ones, hence odd.)
    exponents = tf.bitwise.right_shift(largest + 0x1000, 23)
    units = tf.maximum(exponents - TOP_EXPONENT, SMALLEST_UNIT)
    scales = tf.bitcast(tf.bitwise.left_shift(254 - units, 23), tf.float32)
    return tf.cast(blocks * scales, tf.float16), tf.bitcast(tf.bitwise.left_shift(units, 23), tf.float32)


def _from_halves(halves: Any, units: Any, size: int) -> Any:
    """Float32 (size,) of halves (blocks, BLOCK) and units (blocks, 1)."""
    return tf.reshape(tf.cast(halves, tf.float32) * units, [-1])[:size]
