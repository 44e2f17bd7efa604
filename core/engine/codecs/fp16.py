"""`codec: fp16`: halves with a power of two for each block."""

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from core.engine.codecs import Codec
from core.engine.codecs.blocks import (
    SMALLEST_UNIT,
    count_blocks,
    in_blocks,
    magnitudes_of,
    power_of_two,
)
from core.ground.lazy import tf
from core.inventory.fields import Choice
from core.parameters import BLOCK

TOP_EXPONENT = 14
"""A block's largest magnitude is scaled into [2^14, 2^15), the last binade in which no rounding
overflows a half."""


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
        return -(-size // 2) + count_blocks(size, BLOCK)

    def encode(self, values: Any, memory: Any) -> tuple[Any, Any]:
        """Halves, in pairs, then the units as float32."""
        size = values.shape[0]
        halves, units = _to_halves(values)
        pairs = tf.reshape(tf.reshape(halves, [-1])[: -(-size // 2) * 2], [-1, 2])
        return tf.concat([tf.bitcast(pairs, tf.float32), tf.reshape(units, [-1])], 0), memory

    def decode(self, wire: Any, size: int) -> Any:
        """Halves times their units, exactly."""
        pairs, units = tf.split(wire, [-(-size // 2), count_blocks(size, BLOCK)])
        halves = tf.reshape(tf.bitcast(pairs, tf.float16), [-1])
        return tf.reshape(
            tf.cast(in_blocks(halves, BLOCK), tf.float32) * units[:, tf.newaxis], [-1]
        )[:size]


def _to_halves(values: Any) -> tuple[Any, Any]:
    """Halves (blocks, BLOCK) and units float32 (blocks, 1) of float32 (size,)."""
    blocks = in_blocks(values, BLOCK)
    _, largest = magnitudes_of(blocks)
    # The exponent after rounding to eleven significant bits: were it that of the unrounded value, a
    # value rounded up to the next power of two would have another unit when it is rounded again,
    # and small ones beside it would change. (A tie below a power of two always goes up to it: the
    # eleven bits before it are all ones, hence odd.)
    exponents = tf.bitwise.right_shift(largest + 0x1000, 23)
    units = tf.maximum(exponents - TOP_EXPONENT, SMALLEST_UNIT)
    return tf.cast(blocks * power_of_two(254 - units), tf.float16), power_of_two(units)
