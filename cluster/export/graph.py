"""A trained network as one TensorFlow function of raw windows, its parameters bound as constants.

Nothing has to find variables again: what converts the function has the values in it. The function
is that of TensorFlow for the comparison, and with another LSTM the one that LiteRT is made of.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from core.ground.lazy import tf
from core.models.network import BuiltIn
from core.models.operations import Lstm, portable_operations
from core.models.tensorflow_operations import TensorFlowOperations

if TYPE_CHECKING:
    from cluster.jobs.train_result import StoredModel

INPUT = "windows"
OUTPUT = "logits"
"""Names of what every export takes and answers."""
CHUNK = 250
"""Windows that are answered at a time."""

Answers = Callable[[Any], Any]
"""Logits (batch, classes) from raw windows (batch, steps, channels)."""


def one_thread() -> None:
    """TensorFlow computes with one thread from now on.

    Call it before TensorFlow has computed anything.
    """
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)


def fused_forward(inputs: Any, kernel: Any, bias: Any) -> Any:
    """Our LSTM without its gradient, which no export needs."""
    from core.models.lstm import (
        block_forward,
    )  # its kernels are defined with TensorFlow's decorators

    return block_forward(inputs, kernel, bias).h


def answering(model: "StoredModel", lstm: Lstm = fused_forward) -> Answers:
    """The network as a Python function, to be traced."""
    network = model.network
    standardization = model.standardization
    named = {
        name: tf.constant(value) for name, value in network.layout.unpack(model.vector).items()
    }

    def answer(windows: Any) -> Any:
        inputs = windows
        if len(standardization.mean):
            inputs = (
                tf.cast(windows, tf.float32) - standardization.mean
            ) / standardization.deviation
        if isinstance(network, BuiltIn):
            logits = network.logits(TensorFlowOperations(named, lstm=lstm), inputs)
        else:
            seed = tf.zeros([2], tf.int32)
            with portable_operations():
                logits = network.apply(named, inputs, training=False, seed=seed).logits
        return tf.identity(logits, OUTPUT)

    return answer


def traced(model: "StoredModel", batch: int | None = None, lstm: Lstm = fused_forward) -> Any:
    """The network as a concrete function of `windows`, of one batch or of any."""
    problem = model.network.problem
    spec = tf.TensorSpec((batch, *problem.input_shape), problem.input_dtype, INPUT)
    return tf.function(answering(model, lstm), autograph=False).get_concrete_function(spec)
