"""What travels, bit by bit, against NumPy written from the definitions."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

from cluster.jobs.modes import codec_of
from core.engine.codecs import Codec
from core.engine.codecs.fp16 import Fp16, Fp16Codec
from core.engine.codecs.fp32 import Fp32, Fp32Codec
from core.engine.codecs.topk import TopK, TopKCodec
from core.engine.runtime import trace
from core.ground.lazy import tf
from core.parameters import BLOCK, Vector

FP16 = Fp16()
CODECS = [Fp32(), FP16, TopK(0.1), TopK(0.1, 0.9)]
SIZES = [1, 2, 3, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 1, 3 * BLOCK]
EDGES = [
    0.0,
    -0.0,
    1.4e-45,
    -1.1e-38,
    2.0**-126,
    -(2.0**-103),
    2.0**-87,
    1e-8,
    1.0,
    2047.5 / 1024,
    -3.4028235e38,
]
some = settings(max_examples=60)


def bits(values: Any) -> NDArray[np.uint32]:
    return np.asarray(values, np.float32).view(np.uint32)


def assert_same_bits(found: Any, expected: Any) -> None:
    assert_array_equal(bits(found), bits(expected))


def start(codec: Codec, size: int) -> Any:
    return tf.zeros([codec.memory_rows, size])


def there_and_back(values: Any, codec: Codec = FP16) -> Vector:
    wire, _ = codec.encode(tf.constant(values, tf.float32), start(codec, len(values)))
    assert (wire.shape, wire.dtype) == ((codec.words(len(values)),), tf.float32)
    decoded: Vector = codec.decode(wire, len(values)).numpy()
    return decoded


@st.composite
def vectors(draw: st.DrawFn, sizes: list[int] = SIZES) -> Vector:
    """Draw finite values in blocks of different scales, some zero, some in the corners."""
    size = draw(st.sampled_from(sizes))
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    exponents = np.repeat(generator.uniform(-45, 38, -(-size // BLOCK)), BLOCK)[:size]
    spread = draw(st.sampled_from([0.0, 3.0, 20.0]))
    with np.errstate(over="ignore"):
        values = (
            generator.normal(size=size) * 10 ** (exponents - spread * generator.random(size))
        ).astype(np.float32)
    values[~np.isfinite(values)] = 0.0
    for place, value in draw(
        st.lists(st.tuples(st.integers(0, size - 1), st.sampled_from(EDGES)), max_size=8)
    ):
        values[place] = value
    values[: draw(st.sampled_from([0, 0, size // 2, size]))] *= np.float32(
        draw(st.sampled_from([1.0, -1.0, 0.0]))
    )
    return values


def halves_by_definition(values: Vector) -> Vector:
    """In exact steps: doubles hold every product of a float32 and a power of two.

    NumPy rounds them to halves.
    """
    rounded = np.empty_like(values)
    for start_of_block in range(0, values.size, BLOCK):
        block = values[start_of_block : start_of_block + BLOCK].astype(np.float64)
        significand, exponent = np.frexp(np.abs(block[np.isfinite(block)]).max(initial=0.0))
        exponent = np.frexp(np.ldexp(np.rint(significand * 2**11), int(exponent) - 11))[1]
        unit = 2.0 ** max(int(exponent) - 1 - 14, -101)
        with np.errstate(over="ignore"):
            rounded[start_of_block : start_of_block + BLOCK] = (block / unit).astype(
                np.float16
            ).astype(np.float64) * unit
    return rounded


@some
@given(values=vectors())
def test_halves_are_what_their_definition_says_and_are_not_changed_again(values: Vector) -> None:
    once = there_and_back(values)
    assert_same_bits(once, halves_by_definition(values))
    assert_same_bits(there_and_back(once), once)


def test_rounding_up_to_a_power_of_two_takes_the_small_values_along() -> None:
    """The largest becomes 2, with a unit twice that of its own binade.

    The small one must be rounded to that unit.
    """
    assert there_and_back([2.0 - 2.0**-20, 3 * 2.0**-38]).tolist() == [2.0, 4 * 2.0**-38]


def test_zeros_keep_their_signs_and_denormals_become_zeros() -> None:
    values = [0.0, -0.0, 1.1e-38, -1.1e-38, 1.4e-45, -1.4e-45]
    for among in (values, [*values, 1.0]):
        assert_same_bits(there_and_back(among)[:6], [0.0, -0.0] * 3)


def test_what_is_not_finite_stays_so_and_leaves_the_others_alone() -> None:
    values = np.array([1e-6, np.inf, -np.inf, np.nan, -3e-9, 0.0], np.float32)
    finite = np.isfinite(values)
    decoded = there_and_back(values)
    assert_array_equal(decoded[~finite], values[~finite])
    assert_same_bits(decoded[finite], there_and_back(np.where(finite, values, 0.0))[finite])
    assert there_and_back([3.4028235e38])[0] == np.inf, "as the docstring says"
    largest = 2.0**128 - 2.0**117
    assert there_and_back([largest])[0] == largest


AWKWARD = [0x7F800001, 0xFFA00001, 0x7FC01234, 1, 0x807FFFFF, 0x7F800000, 0x80000000, 0x3F800000]
"""Signalling and quiet NaNs with payloads, denormals, infinities, minus zero: arithmetic would
change them."""


def awkward_bits(size: int) -> Vector:
    return np.resize(np.array(AWKWARD, np.uint32), size).view(np.float32)


def test_fp32_changes_no_bit() -> None:
    values = awkward_bits(3000)

    def both(v: Any) -> Any:
        return Fp32().decode(Fp32().encode(v, start(Fp32(), 3000))[0], 3000)

    assert_same_bits(trace(both, tf.TensorSpec([3000]))(values), values)


@pytest.mark.parametrize("codec", CODECS, ids=str)
def test_traced_and_eager_agree_bit_for_bit(codec: Codec) -> None:
    """TensorFlow may flush denormals in the threads of one and not of the other."""
    size = 2 * BLOCK + 7
    values = np.random.default_rng(6).normal(size=size).astype(np.float32) * np.float32(1e-20)
    values[: len(EDGES) - 1] = EDGES[:-1]

    def both(v: Any, memory: Any) -> Any:
        wire, kept = codec.encode(v, memory)
        return wire, kept, codec.decode(wire, size)

    given = (values, start(codec, size))
    traced = trace(both, *(tf.TensorSpec(each.shape) for each in given))
    for ours, theirs in zip(both(*given), traced(*given), strict=True):
        assert_same_bits(ours, theirs)


@pytest.mark.parametrize("size", [*SIZES, 29_182, 1_000_000])
def test_sizes_on_the_wire(size: int) -> None:
    assert Fp32().words(size) == size
    assert size / 2 <= Fp16().words(size) <= 0.505 * size + 2
    for density in (0.001, 0.01, 0.5):
        codec = TopK(density)
        assert codec.words(size) == 2 * codec.sent(size)
        assert max(1, density * size) <= codec.sent(size) < density * size + 1


@pytest.mark.parametrize(("codec", "rows"), list(zip(CODECS, [0, 0, 1, 2], strict=True)), ids=str)
def test_a_shard_without_values_sends_nothing_and_stateless_is_what_keeps_nothing(
    codec: Codec, rows: int
) -> None:
    assert codec.words(0) == 0
    assert there_and_back([], codec).shape == (0,)
    assert (codec.memory_rows, codec.stateless) == (rows, rows == 0)


@pytest.mark.parametrize(
    ("config", "codec"),
    [
        (Fp32Codec(), Fp32()),
        (Fp16Codec(), FP16),
        (TopKCodec(), TopK(0.01, 0.9)),
        (TopKCodec(density=0.5, momentum=0.0), TopK(0.5, 0.0)),
        (TopKCodec(clip_norm=2.0, warmup_epochs=4), TopK(0.01, 0.9, 2.0, 4)),
    ],
)
def test_the_inventory_s_codecs_are_the_engine_s(config: Any, codec: Codec) -> None:
    assert codec_of(config) == codec
    assert codec.name == config.name
