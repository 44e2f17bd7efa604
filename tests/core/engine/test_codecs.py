"""What travels, bit by bit, against NumPy written from the definitions."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from cluster.jobs.modes import codec_of
from core.engine.codecs import Codec
from core.engine.codecs.fp16 import Fp16, Fp16Codec
from core.engine.codecs.fp32 import Fp32, Fp32Codec
from core.engine.codecs.int4 import Int4, Int4Codec
from core.engine.codecs.int8 import WIDTH, Int8, Int8Codec
from core.engine.codecs.onebit import OneBit, OneBitCodec
from core.engine.codecs.topk import TopK, TopKCodec
from core.engine.runtime import trace
from core.ground.lazy import tf
from core.parameters import BLOCK, Vector

FP16 = Fp16()
INT8 = Int8()
CODECS = [Fp32(), FP16, INT8, Int4(), OneBit(), TopK(0.1), TopK(0.1, 0.9)]
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
few = settings(max_examples=30)


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


def units_by_definition(values: Vector, width: int, largest: int) -> NDArray[np.float64]:
    """The smallest power of two in which a block's values are at most `largest`, for each value."""
    units = np.empty(values.size)
    for begin in range(0, values.size, width):
        block = np.abs(values[begin : begin + width].astype(np.float64))
        highest = block[np.isfinite(block)].max(initial=0.0)
        unit = 2.0**-101
        while highest > largest * unit:
            unit *= 2.0
        units[begin : begin + width] = unit
    return units


@few
@given(values=vectors())
def test_bytes_are_what_their_definition_says_and_are_not_changed_again(values: Vector) -> None:
    values = np.clip(values, -3e38, 3e38)
    units = units_by_definition(values, WIDTH, 127)
    scaled = (np.abs(values) / units).astype(np.float32)
    whole = np.sign(values) * np.rint(scaled) * units
    assert_array_equal(there_and_back(values, Int8(nearest=True)), whole)
    once = there_and_back(values, INT8)
    below = np.sign(values) * np.floor(scaled) * units
    assert np.isin(np.abs(once - below), [0.0, *units]).all()
    assert (np.abs(once - below) <= units).all()
    for codec in (INT8, Int8(nearest=True)):
        assert_same_bits(there_and_back(once, codec), once)
    cut = values.size // BLOCK * BLOCK
    parts = [there_and_back(part, INT8) for part in (values[:cut], values[cut:])]
    assert_same_bits(np.concatenate(parts), once)


def test_int8_rounds_parameters_to_nearest_and_ties_to_even() -> None:
    below_half = np.nextafter(np.float32(0.5), np.float32(0.0))
    values = np.array([127.0, below_half, 0.5, 1.5, -below_half, -1.5], np.float32)
    assert there_and_back(values, Int8(nearest=True)).tolist() == [127.0, 0.0, 0.0, 2.0, 0.0, -2.0]


def test_the_mean_of_many_roundings_is_the_value_at_every_place_of_a_block() -> None:
    """The same value in 4,000 blocks: what else is in a block decides how it rounds."""
    blocks = np.full((4000, WIDTH), -0.3, np.float32)
    blocks[:, 0] = 100.0 + np.random.default_rng(0).random(4000, np.float32)
    rounded = there_and_back(blocks.reshape(-1), INT8).reshape(blocks.shape)[:, 1:]
    assert set(np.unique(rounded)) == {-1.0, 0.0}
    error = np.sqrt(0.3 * 0.7 / 4000)
    assert abs(rounded.mean() + 0.3) < 4 * error / np.sqrt(WIDTH - 1)
    assert np.abs(rounded.mean(0) + 0.3).max() < 5 * error
    assert_allclose(rounded.mean(0).std(), error, rtol=0.2)


def test_bytes_carry_what_is_not_finite_as_nan_and_leave_the_others_alone() -> None:
    decoded = there_and_back([1.0, np.inf, -np.inf, np.nan, -127.0, 0.0], INT8)
    assert_array_equal(decoded, [1.0, np.nan, np.nan, np.nan, -127.0, 0.0])


@few
@given(values=vectors())
def test_half_bytes_and_signs_are_what_their_definitions_say(values: Vector) -> None:
    """What a worker keeps is what its next push lacks."""
    values = np.clip(values, -1e36, 1e36)
    values[np.abs(values) < 1e-30] = 0.0
    units = units_by_definition(values, 64, 7)
    half_bytes = np.rint(values / units) * units
    means = np.concatenate(
        [
            np.full(block.size, np.abs(block).mean(dtype=np.float64))
            for block in np.split(values, range(WIDTH, values.size, WIDTH))
        ]
    )
    for codec, expected in (
        (Int4(), half_bytes),
        (OneBit(), np.where(values > 0.0, means, -means)),
    ):
        wire, errors = codec.encode(tf.constant(values), start(codec, values.size))
        sent = codec.decode(wire, values.size).numpy()
        assert_allclose(sent, expected, rtol=1e-5)
        assert_same_bits(errors[0], values - sent)
        nothing = tf.zeros([values.size])
        assert_same_bits(codec.encode(nothing, errors)[0], codec.encode(errors[0], 0 * errors)[0])


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
    assert size / 4 <= Int8().words(size) <= 0.251 * size + 2
    assert size / 8 <= Int4().words(size) <= 0.129 * size + 2
    assert size / 32 <= OneBit().words(size) <= 0.0352 * size + 2
    for density in (0.001, 0.01, 0.5):
        codec = TopK(density)
        assert codec.words(size) == 2 * codec.sent(size)
        assert max(1, density * size) <= codec.sent(size) < density * size + 1


@pytest.mark.parametrize(
    ("codec", "rows"), list(zip(CODECS, [0, 0, 0, 1, 1, 1, 2], strict=True)), ids=str
)
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
        (Int8Codec(), INT8),
        (Int4Codec(), Int4()),
        (OneBitCodec(), OneBit()),
        (TopKCodec(), TopK(0.01, 0.9)),
        (TopKCodec(density=0.5, momentum=0.0), TopK(0.5, 0.0)),
        (TopKCodec(clip_norm=2.0, warmup_epochs=4), TopK(0.01, 0.9, 2.0, 4)),
    ],
)
def test_the_inventory_s_codecs_are_the_engine_s(config: Any, codec: Codec) -> None:
    assert codec_of(config) == codec
    assert codec.name == config.name
