"""The private names that `cluster.engine.runtime` stands on, pinned against the TensorFlow that is installed."""

import inspect
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cluster.engine import runtime  # before tensorflow

import tensorflow as tf  # isort: skip
from tensorflow.core.protobuf import tensorflow_server_pb2
from tensorflow.python.eager import context, executor
from tensorflow.python.framework import ops


@pytest.mark.parametrize(
    ("function", "parameters"),
    [
        (context.context, []),
        (context.ensure_initialized, []),
        (context.Context.set_server_def, ["self", "server_def", "keep_alive_secs"]),
        (context.Context.update_server_def, ["self", "server_def", "keep_alive_secs"]),
        (context.Context.executor.fset, ["self", "e"]),
        (context.Context.call_function, ["self", "name", "tensor_inputs", "num_outputs"]),
        (executor.new_executor, ["enable_async", "enable_streaming_enqueue", "in_flight_nodes_limit"]),
    ],
)
def test_a_function_takes_what_we_give_it(function: Callable[..., Any], parameters: list[str]) -> None:
    assert list(inspect.signature(function).parameters) == parameters


def test_an_update_keeps_the_context_and_a_set_starts_over() -> None:
    assert "TFE_ContextUpdateServerDef" in inspect.getsource(context.Context.update_server_def)
    assert "TFE_ContextSetServerDef" in inspect.getsource(context.Context.set_server_def)


def test_a_server_definition_may_leave_out_tasks() -> None:
    definition = tensorflow_server_pb2.ServerDef(job_name="chief", task_index=0, protocol="grpc")
    definition.cluster.job.add(name="worker").tasks[3] = "host:1"
    definition.default_session_config.inter_op_parallelism_threads = 1
    definition.default_session_config.intra_op_parallelism_threads = 1
    again = tensorflow_server_pb2.ServerDef.FromString(definition.SerializeToString())
    assert dict(again.cluster.job[0].tasks) == {3: "host:1"}


def test_an_executor_of_ones_own_runs_and_waits() -> None:
    own = executor.new_executor(enable_async=False)
    eager = context.context()
    before = eager.executor
    eager.executor = own
    try:
        assert eager.executor.handle() is not before.handle()
        assert int(tf.constant(2) + 3) == 5
        own.wait()
    finally:
        eager.executor = before
    assert not own.is_async()


@pytest.mark.parametrize("name", ["MutexV2", "MutexLock", "ConsumeMutexLock", "ResourceScatterUpdate", "Identity"])
def test_the_raw_operations_of_shards_and_lanes_are_there(name: str) -> None:
    assert callable(getattr(tf.raw_ops, name))


def test_the_errors_of_a_network_are_transient_and_ours_are_not() -> None:
    for name in ("UnavailableError", "AbortedError", "CancelledError", "DeadlineExceededError"):
        assert runtime.transient(getattr(tf.errors, name)(None, None, "somewhere"))
    ours = "/job:worker/replica:0/task:0/device:CPU:0"
    assert runtime.transient(tf.errors.InvalidArgumentError(None, None, f"{ours} unknown device. [Op:update]"))
    assert not runtime.transient(tf.errors.InvalidArgumentError(None, None, "Incompatible shapes: [2] vs. [3]"))
    assert not runtime.transient(tf.errors.ResourceExhaustedError(None, None, "no memory"))


def test_a_traced_function_says_what_a_call_of_it_takes() -> None:
    factor = tf.Variable(3)
    concrete = tf.function(lambda value: [value * factor, value]).get_concrete_function(tf.TensorSpec([2], tf.int32))
    given = ops.EagerTensor(np.array([1, 2], np.int32), runtime.here(), None)
    found = context.context().call_function(concrete.name, [given, *concrete.captured_inputs], len(concrete.outputs))
    product, same = concrete.function_type.pack_output(found)
    assert (product.numpy().tolist(), same.numpy().tolist()) == ([3, 6], [1, 2])


def test_the_environment_is_set_before_tensorflow_is_imported() -> None:
    source = inspect.getsource(runtime)
    assert source.index("import cluster.engine.environment") < source.index("import tensorflow as tf")
    assert os.environ["GRPC_FAIL_FAST"] == "true"
    assert os.environ["TF_ENABLE_EAGER_CLIENT_STREAMING_ENQUEUE"] == "False"
