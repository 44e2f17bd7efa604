"""The private names that `core.engine.runtime` stands on."""

import ctypes
import inspect
import os
from pathlib import Path
from typing import Any

import pytest

from core.engine import runtime
from core.ground.lazy import tf


def test_the_errors_of_a_network_are_transient_and_ours_are_not() -> None:
    network = ("UnavailableError", "AbortedError", "CancelledError", "DeadlineExceededError")
    unknown = "/job:worker/replica:0/task:0/device:CPU:0 unknown device. [Op:update]"
    theirs = [getattr(tf.errors, name)(None, None, "somewhere") for name in network]
    theirs.append(tf.errors.InvalidArgumentError(None, None, unknown))
    ours = [
        tf.errors.InvalidArgumentError(None, None, "Incompatible shapes: [2] vs. [3]"),
        tf.errors.ResourceExhaustedError(None, None, "no memory"),
    ]
    assert all(map(runtime.transient, theirs))
    assert not any(map(runtime.transient, ours))


def test_a_file_that_a_worker_s_node_lacks_is_told_apart(tmp_path: Path) -> None:
    file = str(tmp_path / "windows.f32")
    with pytest.raises(tf.errors.NotFoundError) as raised:
        tf.raw_ops.ImmutableConst(dtype=tf.float32, shape=[1], memory_region_name=file)
    assert runtime.lacks_file(raised.value)
    assert not runtime.lacks_file(tf.errors.NotFoundError(None, None, "no such operation"))


def test_the_environment_is_set_before_tensorflow_is_imported() -> None:
    from core.engine import graph_options

    source = inspect.getsource(graph_options)
    assert source.index("import core.engine.environment") < source.index("import tensorflow as tf")
    assert os.environ["GRPC_FAIL_FAST"] == "true"
    assert os.environ["TF_ENABLE_EAGER_CLIENT_STREAMING_ENQUEUE"] == "False"
    assert hasattr(ctypes.CDLL(None), "pscluster_one_thread")


def test_the_name_of_variables_that_each_execution_makes() -> None:
    from tensorflow.python.eager import context

    from cluster.apps import call_scope

    assert context.anonymous_name() in inspect.getsource(call_scope)


def test_an_eager_tensor_becomes_a_constant_of_the_graph_within_the_limit_that_we_set() -> None:
    outside = tf.ones([1000])

    def captured() -> list[Any]:
        function = tf.function(lambda: outside + 1.0, autograph=False)
        return [
            each
            for each, inside in function.get_concrete_function().graph.captures
            if inside.op.type != "Const"
        ]

    with runtime.constants_up_to(1000):
        assert not captured()
    assert captured()
