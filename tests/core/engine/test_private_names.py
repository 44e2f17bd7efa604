"""The private names that `core.engine.runtime` stands on."""

import inspect
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from core.engine import runtime  # before tensorflow

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
        (
            executor.new_executor,
            ["enable_async", "enable_streaming_enqueue", "in_flight_nodes_limit"],
        ),
    ],
)
def test_a_function_takes_what_we_give_it(
    function: Callable[..., Any], parameters: list[str]
) -> None:
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


def test_a_traced_function_says_what_a_call_of_it_takes() -> None:
    factor = tf.Variable(3)
    concrete = tf.function(lambda value: [value * factor, value]).get_concrete_function(
        tf.TensorSpec([2], tf.int32)
    )
    given = ops.EagerTensor(np.array([1, 2], np.int32), runtime.here(), None)
    found = context.context().call_function(
        concrete.name, [given, *concrete.captured_inputs], len(concrete.outputs)
    )
    product, same = concrete.function_type.pack_output(found)
    assert (product.numpy().tolist(), same.numpy().tolist()) == ([3, 6], [1, 2])


def test_the_environment_is_set_before_tensorflow_is_imported() -> None:
    source = inspect.getsource(runtime)
    assert source.index("import core.engine.environment") < source.index("import tensorflow as tf")
    assert os.environ["GRPC_FAIL_FAST"] == "true"
    assert os.environ["TF_ENABLE_EAGER_CLIENT_STREAMING_ENQUEUE"] == "False"


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
