"""`codec: int8`: whole numbers of one byte with a power of two for each block."""

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from core.engine.codecs import Codec
from core.engine.codecs.blocks import (
    INFINITY,
    as_bytes,
    as_words,
    count_blocks,
    in_blocks,
    magnitudes_of,
    power_of_two,
    units_of,
    words_of_bytes,
)
from core.ground.lazy import np, tf
from core.inventory.fields import Choice

WIDTH = 256
"""Values that share a unit; it divides the blocks at which shards are cut."""

BITS = 7
"""Bits of a magnitude."""

NOT_A_NUMBER = -128
"""Stands for what is not finite."""

FRACTION_BITS = 16
"""Bits of a rounding's random fraction. A whole number up to 127 plus such a fraction is exact in
float32, so it never rounds up."""


class Int8Codec(Choice):
    """Whole numbers of one byte with a scale for each block of 256: 1 byte a value."""

    name: Literal["int8"] = Field("int8", description="which codec this is")


@dataclass(frozen=True)
class Int8(Codec):
    """Whole numbers -127 to 127, in units of a power of two for each block of 256 values.

    The unit is the smallest in which the block's largest finite magnitude is at most 127, and never
    below 2^-101. Gradients are rounded stochastically: up with the probability of the fraction, so
    that the mean of many is unbiased (QSGD, Alistarh et al., arXiv 1610.02132). Parameters
    (`nearest`) are rounded to nearest, ties to even. What is not finite arrives as NaN, a magnitude
    near the largest float32 may arrive as infinity.

    The random fraction is a hash of the value's bits, its place in the block and the block's
    largest magnitude: a counter that everybody has who has the values. So a node of the tree of
    sums rounds alike on a worker and on a server, a vector may be cut at borders of blocks, and no
    step, seed or slot has to be known. A value repeats its rounding only in a block whose largest
    magnitude repeats too.

    A value rounded once is a whole number of units, whose fraction is 0: rounding it again changes
    nothing.
    """

    nearest: bool = False

    name = "int8"
    travels = "whole numbers with a scale a block of 256: 1 byte a value"
    keeps_back = False
    Options = Int8Codec

    @property
    def for_pulls(self) -> "Int8":
        """Return the codec that rounds parameters to nearest."""
        return Int8(nearest=True)

    def words(self, size: int) -> int:
        """One for four values, and one for four units."""
        return words_of_bytes(size + count_blocks(size, WIDTH))

    def encode(self, values: Any, memory: Any) -> tuple[Any, Any]:
        """Bytes of the whole numbers, then the biased exponents of their units."""
        size = values.shape[0]
        blocks = in_blocks(values, WIDTH)
        magnitudes, largest = magnitudes_of(blocks)
        units = units_of(largest, BITS)
        scaled = tf.bitcast(magnitudes, tf.float32) * power_of_two(254 - units)
        if self.nearest:
            rounded = tf.round(scaled)
        else:
            rounded = tf.floor(scaled + _fractions(blocks, largest))
        finite = magnitudes < INFINITY
        whole = tf.cast(tf.where(finite, rounded, 0.0), tf.int8)
        signed = tf.where(blocks < 0.0, -whole, whole)
        numbers = tf.where(finite, signed, tf.constant(NOT_A_NUMBER, tf.int8))
        exponents = tf.bitcast(tf.cast(units, tf.uint8), tf.int8)
        pieces = [tf.reshape(numbers, [-1])[:size], tf.reshape(exponents, [-1])]
        return as_words(pieces), memory

    def decode(self, wire: Any, size: int) -> Any:
        """Whole numbers times their units, exactly."""
        pieces = tf.split(as_bytes(wire), [size, count_blocks(size, WIDTH), -1])
        numbers = in_blocks(pieces[0], WIDTH)
        exponents = tf.bitcast(pieces[1], tf.uint8)
        whole = tf.where(
            tf.equal(numbers, NOT_A_NUMBER), np.float32("nan"), tf.cast(numbers, tf.float32)
        )
        values = whole * power_of_two(tf.cast(exponents, tf.int32))[:, tf.newaxis]
        return tf.reshape(values, [-1])[:size]


def _fractions(blocks: Any, largest: Any) -> Any:
    """Return float32 fractions in [0, 1) for (blocks, WIDTH) values.

    The mixing is the end of MurmurHash3 (Appleby), over 32-bit whole numbers without signs.
    """
    # Zeros of either sign round to zero with any fraction.
    places = tf.constant(np.arange(WIDTH, dtype=np.uint32) * np.uint32(0x9E3779B9))
    key = tf.bitcast(largest, tf.uint32) * tf.constant(0xCC9E2D51, tf.uint32) + places
    mixed = tf.bitwise.bitwise_xor(tf.bitcast(blocks, tf.uint32), key)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        mixed = tf.bitwise.bitwise_xor(
            mixed, tf.bitwise.right_shift(mixed, tf.constant(shift, tf.uint32))
        )
        mixed *= tf.constant(factor, tf.uint32)
    top = tf.bitwise.right_shift(mixed, tf.constant(32 - FRACTION_BITS, tf.uint32))
    return tf.cast(tf.bitcast(top, tf.int32), tf.float32) * 2.0**-FRACTION_BITS
