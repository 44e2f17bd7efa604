"""What travels, bit by bit, against NumPy written from the definitions of the formats and of the paper."""

import math
import os
import subprocess
import sys
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cluster.engine.codecs.codec import Codec
from cluster.engine.codecs.fp16 import Fp16, Fp16Codec
from cluster.engine.codecs.fp32 import Fp32, Fp32Codec
from cluster.engine.codecs.topk import TopK, TopKCodec
from cluster.engine.runtime import trace
from cluster.jobs.modes.mode import codec_of
from cluster.parameters import BLOCK, Vector
from tests.habits.leaks import PROJECT

import tensorflow as tf  # isort: skip

CODECS = [Fp32(), Fp16(), TopK(0.1), TopK(0.1, 0.9)]
SIZES = [1, 2, 3, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 1, 3 * BLOCK]
EDGES = [0.0, -0.0, 1.4e-45, -1.1e-38, 2.0**-126, -(2.0**-103), 2.0**-87, 1e-8, 1.0, 2047.5 / 1024, -3.4028235e38]
some = settings(max_examples=60, deadline=None)


def bits(values: Any) -> NDArray[np.uint32]:
    return np.asarray(values, np.float32).view(np.uint32)


def start(codec: Codec, size: int) -> Any:
    return tf.zeros([codec.memory_rows, size])


def there_and_back(codec: Codec, values: Vector) -> Vector:
    wire, _ = codec.encode(tf.constant(values), start(codec, values.size))
    assert wire.shape == (codec.words(values.size),)
    assert wire.dtype == tf.float32
    decoded: Vector = codec.decode(wire, values.size).numpy()
    return decoded


@st.composite
def vectors(draw: st.DrawFn, sizes: list[int] = SIZES) -> Vector:
    """Finite values: any, in blocks of very different scales, some of them zero, some of them in the corners."""
    size = draw(st.sampled_from(sizes))
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    exponents = np.repeat(generator.uniform(-45, 38, -(-size // BLOCK)), BLOCK)[:size]
    spread = draw(st.sampled_from([0.0, 3.0, 20.0]))
    with np.errstate(over="ignore"):
        values = (generator.normal(size=size) * 10 ** (exponents - spread * generator.random(size))).astype(np.float32)
    values[~np.isfinite(values)] = 0.0
    for place, value in draw(st.lists(st.tuples(st.integers(0, size - 1), st.sampled_from(EDGES)), max_size=8)):
        values[place] = value
    values[: draw(st.sampled_from([0, 0, size // 2, size]))] *= np.float32(draw(st.sampled_from([1.0, -1.0, 0.0])))
    return values


def halves_by_definition(values: Vector) -> Vector:
    """In exact steps: doubles hold every product of a float32 and a power of two, NumPy rounds them to halves."""
    rounded = np.empty_like(values)
    for start_of_block in range(0, values.size, BLOCK):
        block = values[start_of_block : start_of_block + BLOCK].astype(np.float64)
        significand, exponent = np.frexp(np.abs(block[np.isfinite(block)]).max(initial=0.0))
        exponent = np.frexp(np.ldexp(np.rint(significand * 2**11), int(exponent) - 11))[1]
        unit = 2.0 ** max(int(exponent) - 1 - 14, -101)
        with np.errstate(over="ignore"):
            rounded[start_of_block : start_of_block + BLOCK] = (block / unit).astype(np.float16).astype(
                np.float64
            ) * unit
    return rounded


@some
@given(values=vectors())
def test_halves_are_what_their_definition_says(values: Vector) -> None:
    np.testing.assert_array_equal(bits(there_and_back(Fp16(), values)), bits(halves_by_definition(values)))


@some
@given(values=vectors())
def test_a_value_rounded_once_is_not_changed_again(values: Vector) -> None:
    once = there_and_back(Fp16(), values)
    np.testing.assert_array_equal(bits(there_and_back(Fp16(), once)), bits(once))


def test_rounding_up_to_a_power_of_two_takes_the_small_values_along() -> None:
    """The largest becomes 2, with a unit twice that of its own binade: the small one must be rounded to that unit."""
    values = np.array([2.0 - 2.0**-20, 3 * 2.0**-38], np.float32)
    np.testing.assert_array_equal(there_and_back(Fp16(), values), np.array([2.0, 4 * 2.0**-38], np.float32))


@some
@given(values=vectors([2 * BLOCK + 1, 3 * BLOCK]), cuts=st.lists(st.integers(1, 2), unique=True))
def test_cutting_at_block_borders_does_not_change_a_bit(values: Vector, cuts: list[int]) -> None:
    borders = [0, *(cut * BLOCK for cut in sorted(cuts)), values.size]
    parts = [there_and_back(Fp16(), values[a:b]) for a, b in pairwise(borders)]
    np.testing.assert_array_equal(bits(np.concatenate(parts)), bits(there_and_back(Fp16(), values)))


@pytest.mark.parametrize("scale", [2.0**-80, 2.0**-30, 1.0, 2.0**110])
def test_every_size_of_gradient_keeps_eleven_bits(scale: float) -> None:
    generator = np.random.default_rng(5)
    values = (generator.normal(size=BLOCK) * 10.0 ** generator.uniform(-6, 0, BLOCK) * scale).astype(np.float32)
    assert np.abs(there_and_back(Fp16(), values) / values - 1.0).max() <= 2.0**-11


def test_zeros_keep_their_signs_and_denormals_become_zeros() -> None:
    values = np.array([0.0, -0.0, 1.1e-38, -1.1e-38, 1.4e-45, -1.4e-45], np.float32)
    expected = bits(np.array([0.0, -0.0] * 3))
    np.testing.assert_array_equal(bits(there_and_back(Fp16(), values)), expected)
    beside_one = there_and_back(Fp16(), np.append(values, np.float32(1.0)))
    np.testing.assert_array_equal(bits(beside_one[:-1]), expected)


def test_what_is_not_finite_stays_so_and_leaves_the_others_alone() -> None:
    values = np.array([1e-6, np.inf, -np.inf, np.nan, -3e-9, 0.0], np.float32)
    finite = np.isfinite(values)
    decoded = there_and_back(Fp16(), values)
    np.testing.assert_array_equal(decoded[~finite], values[~finite])
    alone = there_and_back(Fp16(), np.where(finite, values, np.float32(0.0)))
    np.testing.assert_array_equal(bits(decoded[finite]), bits(alone[finite]))
    assert there_and_back(Fp16(), np.array([3.4028235e38], np.float32))[0] == np.inf, "as the docstring says"
    largest = np.array([2.0**128 - 2.0**117], np.float32)
    np.testing.assert_array_equal(there_and_back(Fp16(), largest), largest)


def awkward_bits(size: int) -> Vector:
    """Signalling and quiet NaNs with payloads, denormals, infinities, minus zero: arithmetic would change them."""
    patterns = [0x7F800001, 0xFFA00001, 0x7FC01234, 0x00000001, 0x807FFFFF, 0x7F800000, 0x80000000, 0x3F800000]
    return np.resize(np.array(patterns, np.uint32), size).view(np.float32)


def test_fp32_changes_no_bit() -> None:
    values = awkward_bits(3000)

    def both(v: Any) -> Any:
        return Fp32().decode(Fp32().encode(v, start(Fp32(), 3000))[0], 3000)

    np.testing.assert_array_equal(bits(trace(both, tf.TensorSpec([3000]))(values)), bits(values))


def test_bits_survive_what_a_push_and_the_codecs_do_with_a_wire() -> None:
    """Both unpackings see the bits that were packed, whatever float32 they would spell."""
    wire = awkward_bits(Fp16().words(2 * BLOCK))

    def unpack(update: Any) -> Any:
        body = tf.split(tf.concat([update, [1.0]], 0), [wire.size, 1])[0]
        halves = tf.reshape(tf.bitcast(body[:-2], tf.float16), [-1])
        again = tf.bitcast(tf.reshape(halves, [-1, 2]), tf.float32)
        return tf.concat([again, tf.bitcast(tf.bitcast(body[-2:], tf.int32), tf.float32)], 0)

    np.testing.assert_array_equal(bits(trace(unpack, tf.TensorSpec([wire.size]))(wire)), bits(wire))


@pytest.mark.parametrize("codec", CODECS, ids=str)
def test_traced_and_eager_agree_bit_for_bit(codec: Codec) -> None:
    """TensorFlow may flush denormals in the threads of one and not of the other."""
    size = 2 * BLOCK + 7
    values = np.random.default_rng(6).normal(size=size).astype(np.float32) * np.float32(1e-20)
    values[: len(EDGES) - 1] = EDGES[:-1]

    def both(v: Any, memory: Any) -> Any:
        wire, kept = codec.encode(v, memory)
        return wire, kept, codec.decode(wire, size)

    traced = trace(both, tf.TensorSpec([size]), tf.TensorSpec([codec.memory_rows, size]))
    for ours, theirs in zip(both(values, start(codec, size)), traced(values, start(codec, size)), strict=True):
        np.testing.assert_array_equal(bits(ours), bits(theirs))


def topk_by_the_paper(codec: TopK, gradients: list[Vector]) -> list[tuple[Vector, NDArray[np.int32], Vector]]:
    """(values, indices, memory) after each push, in float32, every operation rounded."""
    size = gradients[0].size
    velocity, residual = np.zeros(size, np.float32), np.zeros(size, np.float32)
    pushes = []
    for gradient in gradients:
        velocity = np.float32(codec.momentum) * velocity + gradient
        residual = residual + velocity
        largest = np.argsort(-np.abs(residual), kind="stable")[: math.ceil(codec.density * size)]
        sent = residual[largest]
        velocity[largest] = residual[largest] = 0.0
        rows = [velocity, residual] if codec.momentum else [residual]
        pushes.append((sent, largest.astype(np.int32), np.stack(rows)))
    return pushes


@pytest.mark.parametrize("codec", [TopK(0.01), TopK(0.01, 0.9), TopK(0.5, 0.5), TopK(1e-6, 0.9)], ids=str)
def test_topk_sends_and_keeps_what_the_paper_says(codec: TopK) -> None:
    generator = np.random.default_rng(7)
    gradients = [generator.normal(size=1500).astype(np.float32) for _ in range(12)]
    memory = start(codec, 1500)
    for gradient, (values, indices, kept) in zip(gradients, topk_by_the_paper(codec, gradients), strict=True):
        wire, memory = codec.encode(tf.constant(gradient), memory)
        np.testing.assert_array_equal(bits(wire), np.concatenate([bits(values), indices.view(np.uint32)]))
        np.testing.assert_array_equal(memory, kept)
        expected = np.zeros(1500, np.float32)
        expected[indices] = values
        np.testing.assert_array_equal(codec.decode(wire, 1500), expected)


def test_the_warm_up_is_the_papers() -> None:
    found = TopK(0.001, warmup_epochs=4).densities()
    np.testing.assert_allclose(found, [0.25, 0.0625, 0.0156, 0.004, 0.001], rtol=0.02)
    assert TopK(0.4, warmup_epochs=2).densities() == [0.4, 0.4, 0.4], "never below what stays"
    assert TopK(0.01).densities() == [0.01]


@some
@given(
    seed=st.integers(0, 2**32),
    size=st.sampled_from([1, 2, 77, 300]),
    density=st.sampled_from([1e-3, 0.03, 0.5]),
    pushes=st.integers(1, 6),
)
def test_what_was_sent_and_what_is_kept_is_all_there_was(seed: int, size: int, density: float, pushes: int) -> None:
    """Gradients are small integers, whose float32 sums are exact: nothing may be missing or there twice."""
    codec, generator = TopK(density), np.random.default_rng(seed)
    memory, sent, total = start(codec, size), np.zeros(size), np.zeros(size)
    for _ in range(pushes):
        gradient = generator.integers(-1000, 1000, size).astype(np.float32)
        accumulated = memory[0].numpy() + gradient
        wire, memory = codec.encode(tf.constant(gradient), memory)
        decoded = codec.decode(wire, size).numpy()
        # Each element went or stayed, with every bit.
        went = decoded != 0
        np.testing.assert_array_equal(np.where(went, decoded, memory[0]), accumulated)
        assert not memory[0].numpy()[went].any()
        total += gradient
        sent += decoded
    np.testing.assert_array_equal(sent + memory[0].numpy(), total)


@pytest.mark.parametrize("size", [3, 40, 5000])
def test_of_equal_magnitudes_the_first_are_sent(size: int) -> None:
    codec = TopK(0.3)
    values = np.resize(np.array([1.0, -1.0], np.float32), size)
    wire, _ = codec.encode(tf.constant(values), start(codec, size))
    count = codec.sent(size)
    np.testing.assert_array_equal(bits(wire)[count:], np.arange(count))
    np.testing.assert_array_equal(wire[:count], values[:count])


def noisy_descent(codec: Codec, rate: float, keep_memory: bool = True) -> float:
    """Loss sum(curvature x^2) / 2 over all coordinates but one, whose gradient is noise louder than all others.

    Starts at x = 1 with a loss of 12 and takes 400 steps.
    """
    size = 20

    def push(values: Any, memory: Any) -> Any:
        wire, kept = codec.encode(values, memory)
        return codec.decode(wire, size), kept

    traced = trace(push, tf.TensorSpec([size]), tf.TensorSpec([codec.memory_rows, size]))
    curvature = np.linspace(0.5, 2.0, size).astype(np.float32)
    generator = np.random.default_rng(8)
    point, memory = np.ones(size, np.float32), start(codec, size)
    for _ in range(400):
        gradient = curvature * point
        gradient[0] += np.float32(generator.choice([-20.0, 20.0]))
        arrived, kept = traced(tf.constant(gradient), memory)
        memory = kept if keep_memory else memory
        point -= np.float32(rate) * arrived.numpy()
    return float((curvature * point**2)[1:].sum() / 2)


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_error_feedback_arrives_where_plain_descent_does(momentum: float) -> None:
    """Two of twenty are sent, and the noise is always one of them; what is forgotten never arrives."""
    codec, rate = TopK(0.1, momentum), 0.03 * (1.0 - momentum)
    assert noisy_descent(Fp32(), 0.03) < 1e-4
    assert noisy_descent(codec, rate) < 1e-4
    assert noisy_descent(codec, rate, keep_memory=False) > 1.0


@pytest.mark.parametrize("size", [*SIZES, 29_182, 1_000_000])
def test_sizes_on_the_wire(size: int) -> None:
    assert Fp32().words(size) == size
    assert size / 2 <= Fp16().words(size) <= 0.505 * size + 2
    for density in (0.001, 0.01, 0.5):
        codec = TopK(density)
        assert codec.words(size) == 2 * codec.sent(size)
        assert max(1, density * size) <= codec.sent(size) < density * size + 1


@pytest.mark.parametrize("codec", CODECS, ids=str)
def test_a_shard_without_values_sends_nothing(codec: Codec) -> None:
    assert codec.words(0) == 0
    assert there_and_back(codec, np.zeros(0, np.float32)).shape == (0,)


def test_stateless_is_what_keeps_nothing() -> None:
    assert [codec.memory_rows for codec in CODECS] == [0, 0, 1, 2]
    assert [codec.stateless for codec in CODECS] == [True, True, False, False]


def test_the_inventory_s_codecs_are_the_engine_s() -> None:
    assert codec_of(Fp32Codec()) == Fp32()
    assert codec_of(Fp16Codec()) == Fp16()
    assert codec_of(TopKCodec()) == TopK(0.01, 0.9)
    assert codec_of(TopKCodec(density=0.5, momentum=0.0)) == TopK(0.5, 0.0)
    assert codec_of(TopKCodec(clip_norm=2.0, warmup_epochs=4)) == TopK(0.01, 0.9, 2.0, 4)
    assert [codec_of(config()).name for config in (Fp32Codec, Fp16Codec, TopKCodec)] == ["fp32", "fp16", "topk"]


DIGEST = """
import hashlib, sys
import numpy as np
from cluster.engine.codecs.fp16 import Fp16
from cluster.engine.codecs.topk import TopK
import tensorflow as tf
tf.config.threading.set_intra_op_parallelism_threads(int(sys.argv[1]))
values = np.random.default_rng(9).normal(size=700_001).astype(np.float32)
values[::3] = np.round(values[::3], 1)  # ties
digest = hashlib.sha256()
for codec in (Fp16(), TopK(0.01, 0.9)):
    memory = tf.zeros([codec.memory_rows, values.size])
    for _ in range(2):
        wire, memory = codec.encode(tf.constant(values), memory)
        for part in (wire, memory, codec.decode(wire, values.size)):
            digest.update(part.numpy().tobytes())
print(digest.hexdigest())
"""


@pytest.mark.long
def test_the_number_of_threads_does_not_change_a_bit() -> None:
    environment = os.environ | {"PYTHONPATH": str(PROJECT)}
    runs = [
        subprocess.Popen([sys.executable, "-c", DIGEST, count], cwd=PROJECT, env=environment, stdout=subprocess.PIPE)
        for count in ("1", "4")
    ]
    one, four = (run.communicate()[0] for run in runs)
    assert [run.returncode for run in runs] == [0, 0]
    assert len(one.strip()) == 64
    assert one == four
