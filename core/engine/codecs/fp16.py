"""`codec: fp16`: halves with a power of two for each block."""

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from core.engine.codecs import Codec
from core.ground.lazy import tf
from core.inventory.fields import Choice
from core.parameters import BLOCK

MAGNITUDE = 0x7FFFFFFF
"""The bits of a float32 without its sign. As integers they have the order of the absolute values.
"""

INFINITY = 0x7F800000
"""The bits of infinity: magnitudes from here on are not finite."""

TOP_EXPONENT = 14
"""A block's largest magnitude is scaled into [2^14, 2^15), the last binade in which no rounding
overflows a half."""

SMALLEST_UNIT = 127 - 101
"""Biased exponent of the smallest unit, 2^-101: the smallest half times it is the normal number
2^-125, and every denormal float32 divided by it rounds to zero. TensorFlow flushes denormals in
some threads; so it cannot matter."""


class Fp16Codec(Choice):
    """Halves with a scale for each block of 1,024: 2 bytes a value."""

    name: Literal["fp16"] = Field("fp16", description="which codec this is")


@dataclass(frozen=True)
class Fp16(Codec):
    """Halves (IEEE 754 binary16), in units of a power of two for each block of 1,024 values.

    The unit of a block brings its largest finite magnitude into [2^14, 2^15), so that neither large
    nor small values overflow or vanish; it is never below 2^-101. What is within 2^28 of the
    largest magnitude keeps eleven significant bits, what is smaller is rounded to a multiple of
    2^-38 of that magnitude's power of two. Rounding is to nearest, ties to even. Signs stay, those
    of zeros too. Infinities and NaNs stay what they are (a NaN's payload may change) and do not
    influence their block; a magnitude of 2^128 - 2^116 or more rounds to infinity.

    A value rounded once is not changed by rounding it again. A block's bits depend on nothing but
    its values, so a vector cut at block borders gives the same ones.
    """

    name = "fp16"
    travels = "halves with a scale a block of 1,024: 2 bytes a value"
    keeps_back = False
    Options = Fp16Codec

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
        return tf.reshape(tf.cast(_in_blocks(halves), tf.float32) * units[:, tf.newaxis], [-1])[
            :size
        ]


def _in_blocks(values: Any) -> Any:
    """Return (size,) values as (blocks, BLOCK): zeros fill the last block."""
    size = values.shape[0]
    blocks = -(-size // BLOCK)
    return tf.reshape(tf.pad(values, [[0, blocks * BLOCK - size]]), [blocks, BLOCK])


def _to_halves(values: Any) -> tuple[Any, Any]:
    """Halves (blocks, BLOCK) and units float32 (blocks, 1) of float32 (size,)."""
    blocks = _in_blocks(values)
    magnitudes = tf.bitwise.bitwise_and(tf.bitcast(blocks, tf.int32), MAGNITUDE)
    largest = tf.reduce_max(tf.where(magnitudes < INFINITY, magnitudes, 0), 1, keepdims=True)
    # The exponent after rounding to eleven significant bits: were it that of the unrounded value, a
    # value rounded up to the next power of two would have another unit when it is rounded again,
    # and small ones beside it would change. (A tie below a power of two always goes up to it: the
    # eleven bits before it are all ones, hence odd.)
    exponents = tf.bitwise.right_shift(largest + 0x1000, 23)
    units = tf.maximum(exponents - TOP_EXPONENT, SMALLEST_UNIT)
    scales = tf.bitcast(tf.bitwise.left_shift(254 - units, 23), tf.float32)
    return tf.cast(blocks * scales, tf.float16), tf.bitcast(
        tf.bitwise.left_shift(units, 23), tf.float32
    )
