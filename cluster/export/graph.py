"""A trained network as one TensorFlow function of raw windows, its parameters bound as constants.

Nothing has to find variables again: what converts the function has the values in it. The function
is that of TensorFlow for the comparison, and with another LSTM the one that LiteRT is made of.
`Writer` writes a network call by call instead: the first axis of its tensors is the batch, a
sequence is (batch, steps, features), and parameters are NumPy's arrays.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

from core.ground.lazy import np, tf
from core.models.network import BuiltIn
from core.models.operations import Array, Lstm, Operations, Tensor, portable_operations
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


STEPS = 1


class Writer(Operations):
    """Writes one built-in network; each call adds to it and returns what it answers."""

    windows: Tensor
    """The model's input, raw windows (batch, steps, channels)."""

    def __init__(self, model: "StoredModel") -> None:
        network = model.network
        assert isinstance(network, BuiltIn)
        super().__init__(network.layout.unpack(model.vector))
        self._network = network
        self._standardization = model.standardization
        self.windows = self.input(INPUT, *network.problem.input_shape)

    @abstractmethod
    def input(self, name: str, steps: int, channels: int) -> Tensor:
        """Return the model's input."""

    def logits(self) -> Tensor:
        """Return the answers of the network to raw windows."""
        standardization = self._standardization
        windows = (self.windows - standardization.mean) / standardization.deviation
        return self._network.logits(self, windows)

    def sequence(self, windows: Tensor) -> Tensor:
        """Return the windows: a sequence is batch-major here."""
        return windows

    def averaged(self, sequence: Tensor) -> Tensor:
        """Reduce over the steps."""
        return self.reduce("mean", sequence, STEPS)

    def window_norm(self, windows: Tensor, epsilon: float) -> Tensor:
        """Write the normalization of each window with plain operations."""
        centred = windows - self.reduce("mean", windows, STEPS, keep_axis=True)
        variance = self.reduce("mean", self.unary("square", centred), STEPS, keep_axis=True)
        return centred / self.unary("sqrt", variance + epsilon)

    def step_norm(self, name: str, sequence: Tensor, epsilon: float) -> Tensor:
        """Normalize with the running statistics."""
        parameters = self.parameters
        variance = parameters[f"{name}/variance"].astype(np.float64)
        factor = (parameters[f"{name}/scale"] / np.sqrt(variance + epsilon)).astype(np.float32)
        centred = sequence - _by_step(parameters[f"{name}/mean"])
        return centred * _by_step(factor) + parameters[f"{name}/shift"]

    def dropout(self, inputs: Tensor, keep_probability: float, site: int) -> Tensor:
        """Drop nothing: an export does not train."""
        return inputs

    def from_windows(self, compute: Callable[[], Tensor]) -> Tensor:
        """Compute: an export has no gradient."""
        return compute()

    def add_n(self, tensors: Sequence[Tensor]) -> Tensor:
        """Add one after the other."""
        return reduce(add, tensors)


def _by_step(values: Array) -> Array:
    return values[None, :, None]
