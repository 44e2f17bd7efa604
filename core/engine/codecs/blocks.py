"""What codecs of blocks share: cutting, units that are powers of two, bytes in float32 words."""

from typing import Any

from core.ground.lazy import tf

MAGNITUDE = 0x7FFFFFFF
"""The bits of a float32 without its sign. As integers they have the order of the absolute values.
"""

INFINITY = 0x7F800000
"""The bits of infinity: magnitudes from here on are not finite."""

SMALLEST_UNIT = 127 - 101
"""Biased exponent of the smallest unit, 2^-101: the smallest half times it is the normal number
2^-125, and every denormal float32 divided by it rounds to zero. TensorFlow flushes denormals in
some threads; so it cannot matter."""

WORD_BYTES = 4


def count_blocks(size: int, width: int) -> int:
    """Return how many blocks `size` values have."""
    return -(-size // width)


def in_blocks(values: Any, width: int) -> Any:
    """Return (size,) values as (blocks, width): zeros fill the last block."""
    size = values.shape[0]
    blocks = count_blocks(size, width)
    return tf.reshape(tf.pad(values, [[0, blocks * width - size]]), [blocks, width])


def magnitudes_of(blocks: Any) -> tuple[Any, Any]:
    """Return int32 bits without signs, and the largest finite ones of each block (blocks, 1)."""
    magnitudes = tf.bitwise.bitwise_and(tf.bitcast(blocks, tf.int32), MAGNITUDE)
    largest = tf.reduce_max(tf.where(magnitudes < INFINITY, magnitudes, 0), 1, keepdims=True)
    return magnitudes, largest


def units_of(largest: Any, bits: int) -> Any:
    """Return the biased exponents of the units of whole numbers of so many bits and a sign.

    A unit is the smallest power of two in which the block's largest magnitude is at most 2^bits -
    1. So every whole number of units has at most this unit when it is encoded again: it stays.
    """
    exponents = tf.bitwise.right_shift(largest + ((1 << (24 - bits)) - 1), 23)
    return tf.maximum(exponents - (bits - 1), SMALLEST_UNIT)


def power_of_two(exponents: Any) -> Any:
    """Return float32 powers of two of biased exponents, int32."""
    return tf.bitcast(tf.bitwise.left_shift(exponents, 23), tf.float32)


def words_of_bytes(size: int) -> int:
    """Return how many float32 elements carry `size` bytes."""
    return -(-size // WORD_BYTES)


def as_words(pieces: list[Any]) -> Any:
    """Return the bytes of `pieces`, int8 (n,) each, as the bits of float32 elements."""
    joined = tf.concat(pieces, 0)
    size = joined.shape[0]
    padded = tf.pad(joined, [[0, words_of_bytes(size) * WORD_BYTES - size]])
    return tf.bitcast(tf.reshape(padded, [-1, WORD_BYTES]), tf.float32)


def as_bytes(wire: Any) -> Any:
    """Return the bits of float32 elements as bytes, int8."""
    return tf.reshape(tf.bitcast(wire, tf.int8), [-1])
