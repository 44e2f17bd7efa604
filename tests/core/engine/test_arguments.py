"""A call's arguments through one tensor and back: the same bits, shapes and types."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as of_numpy

from core.engine.codecs import PackedArguments
from core.engine.runtime import trace
from core.ground.lazy import tf

DTYPES = (np.int32, np.int64, np.float32, np.float64)


SHAPES = of_numpy.array_shapes(min_dims=0, max_dims=3, min_side=0)
ARRAYS = st.sampled_from(DTYPES).flatmap(
    lambda dtype: of_numpy.arrays(f"u{np.dtype(dtype).itemsize}", SHAPES).map(
        lambda bits: bits.view(dtype)
    )
)
"""Any bits at all: infinities, signalling NaNs and denormals too."""


@settings(max_examples=40)
@given(st.lists(st.tuples(ARRAYS, st.booleans()), min_size=1, max_size=6))
def test_arguments_come_back_bit_by_bit(drawn: list[tuple[Any, bool]]) -> None:
    values = [value for value, _ in drawn]
    signature = [
        tf.TensorSpec(
            [None, *value.shape[1:]] if value.ndim and unknown else value.shape, value.dtype
        )
        for value, unknown in drawn
    ]
    came = trace(lambda *given: [tf.identity(each) for each in given], *signature)(*values)
    for value, spec, found in zip(values, signature, came, strict=True):
        assert found.shape == value.shape
        assert found.dtype == spec.dtype
        assert found.numpy().tobytes() == value.tobytes()


def test_shapes_that_are_known_are_known_in_the_graph_and_the_others_are_open() -> None:
    seen: list[Any] = []

    def function(*given: Any) -> Any:
        seen.extend(each.shape.as_list() for each in given)
        return given[0]

    trace(
        function,
        tf.TensorSpec([], tf.int64),
        tf.TensorSpec([None, 2], tf.int32),
        tf.TensorSpec([3], tf.float32),
    )
    assert seen == [[], [None, 2], [3]]


def test_one_call_sends_one_tensor() -> None:
    """By its signature: the packed vector is all that travels."""
    packing = PackedArguments([tf.TensorSpec([], tf.int64), tf.TensorSpec([2, 9], tf.float32)])
    assert packing.signature == tf.TensorSpec([20], tf.int32)
    assert packing.pack([np.int64(1), np.zeros((2, 9), np.float32)]).shape == (20,)


@pytest.mark.parametrize(
    "values",
    [
        (np.int32(1), np.zeros(3, np.float32)),
        (np.int64(1), np.zeros(4, np.float32)),
        (np.int64(1), np.zeros((3, 1), np.float32)),
        (np.int64(1),),
    ],
)
def test_what_does_not_fit_is_refused_with_both_sides_named(values: tuple[Any, ...]) -> None:
    call = trace(
        lambda one, two: tf.cast(one, tf.float32) + two,
        tf.TensorSpec([], tf.int64),
        tf.TensorSpec([3]),
    )
    with pytest.raises(ValueError, match=r"expected the arguments int64 \[\], float32 \[3\], got "):
        call(*values)


@pytest.mark.parametrize(("shape", "dtype"), [([2], "bool"), ([2, None], "int32")])
def test_what_cannot_be_packed_is_refused_when_it_is_traced(
    shape: list[int | None], dtype: str
) -> None:
    with pytest.raises(ValueError, match="expected arguments of 32-bit words"):
        PackedArguments([tf.TensorSpec(shape, dtype)])
