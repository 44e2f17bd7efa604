"""`codec: onebit`: the signs, and a mean magnitude for each block; a worker keeps the rest."""

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from core.engine.codecs import Codec
from core.engine.codecs.blocks import count_blocks, in_blocks
from core.engine.codecs.int8 import Int8
from core.ground.lazy import np, tf
from core.inventory.fields import Choice

WIDTH = 256
"""Values that share a magnitude."""

WORD_BITS = 32


class OneBitCodec(Choice):
    """The signs, and a mean magnitude for each block of 256; the worker keeps the rest for later.

    Parameters travel as int8 does.
    """

    name: Literal["onebit"] = Field("onebit", description="which codec this is")


@dataclass(frozen=True)
class OneBit(Codec):
    """The sign of each value, times the mean magnitude of its block of 256 values.

    The memory's row is the error, which is added to the next values: signSGD with error feedback
    (Karimireddy et al., arXiv 1901.09847, algorithm 1, by blocks). Values must be finite.

    Adam divides by magnitudes of single values, which do not travel: with it, steps are those of a
    block's mean. 1-bit Adam (Tang et al., arXiv 2102.02888) therefore learns Adam's second moment
    from whole gradients first and freezes it; nothing here does so.
    """

    name = "onebit"
    travels = (
        "signs with a mean magnitude a block of 256: an eighth of a byte a value; pulls as `int8`"
    )
    keeps_back = True
    Options = OneBitCodec
    for_pulls = Int8(nearest=True)
    memory_rows = 1

    def words(self, size: int) -> int:
        """One for 32 values, and one for the magnitude of a block."""
        return count_blocks(size, WORD_BITS) + count_blocks(size, WIDTH)

    def encode(self, values: Any, memory: Any) -> tuple[Any, Any]:
        """Signs, 32 to an element, then the magnitudes; new memory."""
        size = values.shape[0]
        summed = memory[0] + values
        positive = summed > 0.0
        count = count_blocks(size, WIDTH)
        sizes = np.minimum(WIDTH, size - WIDTH * np.arange(count))
        # Not divided: a traced graph would multiply by the inverse, which rounds differently.
        shares = tf.constant(1.0 / sizes, tf.float32)
        means = tf.reduce_sum(tf.abs(in_blocks(summed, WIDTH)), 1) * shares
        bits = tf.cast(in_blocks(positive, WORD_BITS), tf.int32)
        bit_words = tf.reduce_sum(tf.bitwise.left_shift(bits, tf.range(WORD_BITS)), 1)
        errors = summed - _signed(positive, means, size)
        return tf.concat([tf.bitcast(bit_words, tf.float32), means], 0), errors[tf.newaxis]

    def decode(self, wire: Any, size: int) -> Any:
        """The magnitudes with their signs."""
        word_count = count_blocks(size, WORD_BITS)
        bit_words = tf.bitcast(wire[:word_count], tf.int32)
        shifted = tf.bitwise.right_shift(bit_words[:, tf.newaxis], tf.range(WORD_BITS))
        positive = tf.reshape(tf.equal(tf.bitwise.bitwise_and(shifted, 1), 1), [-1])[:size]
        return _signed(positive, wire[word_count:], size)


def _signed(positive: Any, means: Any, size: int) -> Any:
    """Return the mean of each value's block with its sign, float32 (size,)."""
    of_values = tf.repeat(means, WIDTH)[:size]
    return tf.where(positive, of_values, -of_values)
