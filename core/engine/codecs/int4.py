"""`codec: int4`: whole numbers of half a byte; a worker keeps what rounding took."""

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from core.engine.codecs import Codec
from core.engine.codecs.blocks import (
    as_bytes,
    as_words,
    count_blocks,
    in_blocks,
    magnitudes_of,
    power_of_two,
    units_of,
    words_of_bytes,
)
from core.engine.codecs.int8 import Int8
from core.ground.lazy import tf
from core.inventory.fields import Choice

WIDTH = 64
"""Values that share a unit."""

BITS = 3
"""Bits of a magnitude."""

ZERO = 8
"""The half byte of zero: whole numbers -7 to 7 are 1 to 15."""


class Int4Codec(Choice):
    """Whole numbers of half a byte; the worker keeps what rounding took for later.

    Parameters travel as int8 does.
    """

    name: Literal["int4"] = Field("int4", description="which codec this is")


@dataclass(frozen=True)
class Int4(Codec):
    """Whole numbers -7 to 7, in units of a power of two for each block of 64 values.

    The memory's row is the error: it is added to the next values, the sum is rounded to nearest,
    ties to even, and what rounding took is the new error (Seide et al., 1-Bit Stochastic Gradient
    Descent, Interspeech 2014; Karimireddy et al., arXiv 1901.09847). Values must be finite.
    """

    name = "int4"
    travels = "whole numbers with a scale a block of 64: half a byte a value; pulls as `int8`"
    keeps_back = True
    Options = Int4Codec
    for_pulls = Int8(nearest=True)
    memory_rows = 1

    def words(self, size: int) -> int:
        """One for eight values, and one for four units."""
        return words_of_bytes(-(-size // 2) + count_blocks(size, WIDTH))

    def encode(self, values: Any, memory: Any) -> tuple[Any, Any]:
        """Pairs of half bytes, then the biased exponents of the units; new memory."""
        size = values.shape[0]
        summed = memory[0] + values
        blocks = in_blocks(summed, WIDTH)
        units = units_of(magnitudes_of(blocks)[1], BITS)
        whole = tf.round(blocks * power_of_two(254 - units))
        errors = summed - tf.reshape(whole * power_of_two(units), [-1])[:size]
        halves = tf.reshape(tf.cast(whole + ZERO, tf.uint8), [-1, 2])
        pairs = tf.bitcast(halves[:, 0] + halves[:, 1] * 16, tf.int8)[: -(-size // 2)]
        exponents = tf.bitcast(tf.cast(units, tf.uint8), tf.int8)
        return as_words([pairs, tf.reshape(exponents, [-1])]), errors[tf.newaxis]

    def decode(self, wire: Any, size: int) -> Any:
        """Whole numbers times their units, exactly."""
        content = tf.bitcast(as_bytes(wire), tf.uint8)
        pieces = tf.split(content, [-(-size // 2), count_blocks(size, WIDTH), -1])
        halves = tf.stack([pieces[0] % 16, pieces[0] // 16], 1)
        whole = tf.cast(in_blocks(tf.reshape(halves, [-1]), WIDTH), tf.float32) - ZERO
        values = whole * power_of_two(tf.cast(pieces[1], tf.int32))[:, tf.newaxis]
        return tf.reshape(values, [-1])[:size]
