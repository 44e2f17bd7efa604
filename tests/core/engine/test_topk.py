"""Deep Gradient Compression against NumPy written from the paper."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from core.engine.codecs.topk import TopK
from core.ground.lazy import tf
from core.parameters import Vector
from tests.core.engine.test_codecs import bits, start


def topk_by_the_paper(
    codec: TopK, gradients: list[Vector]
) -> list[tuple[Vector, NDArray[np.int32], Vector]]:
    """(values, indices, memory) after each push, in float32, every operation rounded."""
    size = gradients[0].size
    velocity = np.zeros(size, np.float32)
    residual = np.zeros(size, np.float32)
    pushes = []
    for gradient in gradients:
        velocity = np.float32(codec.momentum) * velocity + gradient
        residual = residual + velocity
        largest = np.argsort(-np.abs(residual), kind="stable")[: math.ceil(codec.density * size)]
        sent = residual[largest]
        velocity[largest] = residual[largest] = 0.0
        rows = np.stack([velocity, residual])[-codec.memory_rows :]
        pushes.append((sent, largest.astype(np.int32), rows))
    return pushes


@pytest.mark.parametrize(
    "codec", [TopK(0.01), TopK(0.01, 0.9), TopK(0.5, 0.5), TopK(1e-6, 0.9)], ids=str
)
def test_topk_sends_and_keeps_what_the_paper_says(codec: TopK) -> None:
    generator = np.random.default_rng(7)
    gradients = [generator.normal(size=1500).astype(np.float32) for _ in range(12)]
    memory = start(codec, 1500)
    for gradient, (values, indices, kept) in zip(
        gradients, topk_by_the_paper(codec, gradients), strict=True
    ):
        wire, memory = codec.encode(tf.constant(gradient), memory)
        assert_array_equal(bits(wire), np.concatenate([bits(values), indices.view(np.uint32)]))
        assert_array_equal(memory, kept)
        expected = np.zeros(1500, np.float32)
        expected[indices] = values
        assert_array_equal(codec.decode(wire, 1500), expected)


def test_the_warm_up_is_the_papers() -> None:
    found = TopK(0.001, warmup_epochs=4).densities()
    assert_allclose(found, [0.25, 0.0625, 0.0156, 0.004, 0.001], rtol=0.02)
    assert TopK(0.4, warmup_epochs=2).densities() == [0.4, 0.4, 0.4], "never below what stays"
    assert TopK(0.01).densities() == [0.01]


@pytest.mark.parametrize("size", [3, 40, 5000])
def test_of_equal_magnitudes_the_first_are_sent(size: int) -> None:
    codec = TopK(0.3)
    values = np.resize(np.array([1.0, -1.0], np.float32), size)
    wire, _ = codec.encode(tf.constant(values), start(codec, size))
    count = codec.sent(size)
    assert_array_equal(bits(wire)[count:], np.arange(count))
    assert_array_equal(wire[:count], values[:count])
