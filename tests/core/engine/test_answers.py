"""A short result as the sizes of an empty tensor, and back: the same bits, shape and type."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from core.engine.codecs import MOST_WORDS, AnswerAsShape
from core.engine.runtime import trace
from core.ground.lazy import tf

DTYPES = (np.int32, np.int64, np.float32, np.float64)
SHAPES = ((), (1,), (8,), (3, 5), (0,), (125,))


@pytest.fixture(scope="module")
def functions() -> dict[Any, Any]:
    """Each gives back what it is given; traced once for all examples."""
    return {
        (dtype, shape): trace(
            lambda value: value + 0 if value.dtype.is_integer else tf.identity(value),
            tf.TensorSpec(shape, dtype),
        )
        for dtype in DTYPES
        for shape in SHAPES
    }


@settings(max_examples=60)
@given(st.sampled_from(DTYPES), st.sampled_from(SHAPES), st.binary(min_size=1000, max_size=1000))
@example(
    np.float64, (125,), b"\xff" * 1000
)  # the largest words there are, in as many places as there are
@example(np.float32, (8,), b"\x01\x00\xa0\x7f" * 250)  # signalling NaNs
@example(np.int64, (3, 5), b"\x00" * 1000)
def test_a_result_comes_back_bit_by_bit(
    functions: dict[Any, Any], dtype: Any, shape: tuple[int, ...], content: bytes
) -> None:
    value = np.frombuffer(content, dtype)[: int(np.prod(shape))].reshape(shape)
    found = functions[dtype, shape].answer(value)
    assert (found.dtype, found.shape) == (value.dtype, value.shape)
    assert found.tobytes() == value.tobytes()
    tensor = functions[dtype, shape](value)
    assert tensor.numpy().tobytes() == value.tobytes()


def test_a_vector_comes_back_whose_length_the_call_alone_knows() -> None:
    signature = tf.TensorSpec([None], tf.float32)
    function = trace(tf.identity, signature, longest=MOST_WORDS)
    for length in (0, 1, MOST_WORDS):
        value = np.arange(length, dtype=np.float32)
        assert_array_equal(function.answer(value), value)


def test_what_does_not_fit_is_fetched_as_it_is() -> None:
    long = np.arange(MOST_WORDS + 1, dtype=np.float32)
    unfit: dict[str, Callable[[Any], Any]] = {
        "too long": lambda value: value,
        "of several tensors": lambda value: [value, value[:1]],
        "of an unknown length, and maybe too long": lambda value: tf.boolean_mask(
            value, value > 3.0
        ),
        "of a type without 32 bits": lambda value: value > 3.0,
    }
    for what, function in unfit.items():
        found = trace(function, tf.TensorSpec(long.shape)).answer(long)
        expected = tf.nest.map_structure(lambda tensor: tensor.numpy(), function(tf.constant(long)))
        for one, other in zip(tf.nest.flatten(found), tf.nest.flatten(expected), strict=True):
            assert_array_equal(one, other, what)


def test_the_result_itself_is_an_empty_tensor() -> None:
    written = AnswerAsShape.carrying(tf.constant([1.0, -2.0], tf.float64))
    assert written.shape[0] == 0
    assert written.shape.rank == 1 + 4
