"""Layers without state: each has its parameters' names and shapes and is applied to the tensors of those names."""

from dataclasses import dataclass

from cluster.lazy import tf
from cluster.models.network import Parameter, Tensors, constant, glorot_uniform, lstm_bias, lstm_kernel


@dataclass(frozen=True)
class Dense:
    """A matrix product plus bias over the last axis; `bias` is the value every bias starts from."""

    name: str
    inputs: int
    outputs: int
    bias: float = 0.0

    def parameters(self) -> list[Parameter]:
        """A Glorot kernel and a constant bias."""
        return [
            Parameter(f"{self.name}/kernel", (self.inputs, self.outputs), initial=glorot_uniform),
            Parameter(f"{self.name}/bias", (self.outputs,), decayed=False, initial=constant(self.bias)),
        ]

    def __call__(self, parameters: Tensors, inputs: tf.Tensor) -> tf.Tensor:
        """Shape (..., outputs) from (..., inputs): one matrix product for all steps and windows together."""
        rows = tf.reshape(inputs, [-1, self.inputs])
        outputs = tf.nn.bias_add(tf.matmul(rows, parameters[f"{self.name}/kernel"]), parameters[f"{self.name}/bias"])
        return tf.reshape(outputs, tf.concat([tf.shape(inputs)[:-1], [self.outputs]], 0))


@dataclass(frozen=True)
class Convolution:
    """A convolution over time, `taps` samples wide, one output every `stride` samples, zeros beyond the window."""

    name: str
    inputs: int
    outputs: int
    taps: int
    stride: int

    def parameters(self) -> list[Parameter]:
        """A Glorot kernel of shape (taps, inputs, outputs) and a zero bias."""
        return [
            Parameter(f"{self.name}/kernel", (self.taps, self.inputs, self.outputs), initial=glorot_uniform),
            Parameter(f"{self.name}/bias", (self.outputs,), decayed=False, initial=constant(0.0)),
        ]

    def __call__(self, parameters: Tensors, inputs: tf.Tensor) -> tf.Tensor:
        """Shape (batch, ceil(steps / stride), outputs) from (batch, steps, inputs)."""
        outputs = tf.nn.conv1d(inputs, parameters[f"{self.name}/kernel"], self.stride, "SAME")
        return tf.nn.bias_add(outputs, parameters[f"{self.name}/bias"])


@dataclass(frozen=True)
class Lstm:
    """One LSTM over time-major inputs; `backward` reads them from the last step to the first."""

    name: str
    features: int
    hidden: int
    backward: bool = False

    def parameters(self) -> list[Parameter]:
        """Keras's 4 * hidden * (features + hidden + 1) parameters, input and state rows in one kernel."""
        rows, columns = self.features + self.hidden, 4 * self.hidden
        return [
            Parameter(f"{self.name}/kernel", (rows, columns), initial=lstm_kernel),
            Parameter(f"{self.name}/bias", (columns,), decayed=False, initial=lstm_bias),
        ]

    def __call__(self, parameters: Tensors, inputs: tf.Tensor) -> tf.Tensor:
        """Shape (steps, batch, hidden) from (steps, batch, features); output k belongs to input k either way."""
        from cluster.models.lstm import lstm  # its kernels are defined with TensorFlow's decorators

        kernel, bias = parameters[f"{self.name}/kernel"], parameters[f"{self.name}/bias"]
        return lstm(inputs, kernel, bias, backward=self.backward)


class BidirectionalLstm:
    """Two LSTMs of `hidden` units each over the same inputs, one from either end."""

    def __init__(self, name: str, features: int, hidden: int) -> None:
        backward = Lstm(f"{name}/backward", features, hidden, backward=True)
        self._directions = (Lstm(f"{name}/forward", features, hidden), backward)

    def parameters(self) -> list[Parameter]:
        """Those of the forward LSTM, then those of the backward one."""
        return [parameter for direction in self._directions for parameter in direction.parameters()]

    def __call__(self, parameters: Tensors, inputs: tf.Tensor) -> tf.Tensor:
        """Shape (steps, batch, 2 * hidden) from (steps, batch, features): forward outputs, then backward ones."""
        return tf.concat([direction(parameters, inputs) for direction in self._directions], 2)


@dataclass(frozen=True)
class Dropout:
    """Keeps each element with `keep_probability` and scales it up by its inverse, in training only.

    The mask follows from a seed alone: a repeated step drops the same units, on every machine. `site` distinguishes
    the masks of one network's several dropouts.
    """

    keep_probability: float
    site: int

    def __call__(self, inputs: tf.Tensor, *, training: bool, seed: tf.Tensor) -> tf.Tensor:
        """The inputs' shape; `seed` is int32 of shape (2,)."""
        if not training or self.keep_probability == 1.0:
            return inputs
        own_seed = tf.random.experimental.stateless_fold_in(seed, self.site, alg="philox")
        # `auto_select` would pick the generator by the device's kind.
        return tf.nn.experimental.stateless_dropout(inputs, 1.0 - self.keep_probability, own_seed, rng_alg="philox")


@dataclass(frozen=True)
class LayerNorm:
    """Mean 0 and variance 1 over the last axis, then a trained scale and shift per feature (Ba et al. 2016)."""

    name: str
    features: int
    epsilon: float = 1e-5

    def parameters(self) -> list[Parameter]:
        """Scales of 1 and shifts of 0, one pair a feature."""
        return [
            Parameter(f"{self.name}/scale", (self.features,), decayed=False, initial=constant(1.0)),
            Parameter(f"{self.name}/shift", (self.features,), decayed=False, initial=constant(0.0)),
        ]

    def __call__(self, parameters: Tensors, inputs: tf.Tensor) -> tf.Tensor:
        """The inputs' shape, (..., features)."""
        mean, variance = tf.nn.moments(inputs, [-1], keepdims=True)
        normalized = (inputs - mean) * tf.math.rsqrt(variance + self.epsilon)
        return normalized * parameters[f"{self.name}/scale"] + parameters[f"{self.name}/shift"]


@dataclass(frozen=True)
class StepBatchNorm:
    """Mean 0 and variance 1 over batch and features of each time step, then one trained scale and shift for all.

    In training the micro-batch's own statistics normalize it and are handed back to be averaged; outside training
    the averages do. They are untrained parameters `mean` and `variance` of shape (steps,).
    """

    name: str
    steps: int
    epsilon: float = 1e-3

    def parameters(self) -> list[Parameter]:
        """One scale, which starts at 0.5 as in the reference code, one shift, and the running statistics."""
        return [
            Parameter(f"{self.name}/scale", (1,), decayed=False, initial=constant(0.5)),
            Parameter(f"{self.name}/shift", (1,), decayed=False, initial=constant(0.0)),
            Parameter(f"{self.name}/mean", (self.steps,), trained=False, decayed=False, initial=constant(0.0)),
            Parameter(f"{self.name}/variance", (self.steps,), trained=False, decayed=False, initial=constant(1.0)),
        ]

    def __call__(
        self, parameters: Tensors, inputs: tf.Tensor, *, training: bool
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """The inputs' shape, (steps, batch, features), and this micro-batch's statistics by name when training."""
        statistics: dict[str, tf.Tensor] = {}
        if training:
            mean, variance = tf.nn.moments(inputs, [1, 2])
            statistics = {
                f"{self.name}/mean": tf.stop_gradient(mean),
                f"{self.name}/variance": tf.stop_gradient(variance),
            }
        else:
            mean, variance = parameters[f"{self.name}/mean"], parameters[f"{self.name}/variance"]
        factor = tf.math.rsqrt(variance + self.epsilon) * parameters[f"{self.name}/scale"]
        normalized = (inputs - mean[:, None, None]) * factor[:, None, None]
        return normalized + parameters[f"{self.name}/shift"], statistics
