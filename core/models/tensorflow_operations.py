"""The operations of networks as TensorFlow computes them, in training and for LiteRT."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from core.ground.lazy import tf
from core.models.operations import Array, Lstm, LstmCell, Operations, Reduction, Tensor, Unary

STEPS = 0
"""A sequence is (steps, batch, features) here, as the fused kernels read it."""


class TensorFlowOperations(Operations):
    """Computes. `statistics` holds by name what a batch in training measured."""

    def __init__(
        self,
        parameters: Mapping[str, Array],
        *,
        training: bool = False,
        seed: Any = None,
        lstm: Lstm | None = None,
    ) -> None:
        """`seed`, int32 of shape (2,), decides the masks of dropout.

        `lstm` computes in the place of our kernels.
        """
        super().__init__(parameters)
        self.statistics: dict[str, Tensor] = {}
        self._training = training
        self._seed = seed
        self._lstm = lstm

    def dense(self, inputs: Tensor, kernel: Array, bias: Array | None) -> Tensor:
        """One matrix product for all steps and windows together."""
        features, outputs = kernel.shape
        products = tf.matmul(tf.reshape(inputs, [-1, features]), kernel)
        if bias is not None:
            products = tf.nn.bias_add(products, bias)
        return tf.reshape(products, tf.concat([tf.shape(inputs)[:-1], [outputs]], 0))

    def convolution(self, inputs: Tensor, kernel: Array, bias: Array, stride: int) -> Tensor:
        """Convolve, then add the bias."""
        return tf.nn.bias_add(tf.nn.conv1d(inputs, kernel, stride, "SAME"), bias)

    def sequence(self, windows: Tensor) -> Tensor:
        """Put the steps first."""
        return tf.transpose(windows, [1, STEPS, 2])

    def lstm(self, sequence: Tensor, cells: Sequence[LstmCell]) -> Tensor:
        """Run the kernel that the shapes choose, once a cell."""
        from core.models.lstm import lstm  # its kernels are defined with TensorFlow's decorators

        outputs = [
            lstm(sequence, cell.kernel, cell.bias, backward=cell.backward, by=self._lstm)
            for cell in cells
        ]
        if len(outputs) == 1:
            return outputs[0]
        return tf.concat(outputs, 2)

    def at(self, sequence: Tensor, step: int) -> Tensor:
        """Index the steps."""
        return sequence[step]

    def averaged(self, sequence: Tensor) -> Tensor:
        """Average over the steps."""
        return tf.reduce_mean(sequence, STEPS)

    def layer_norm(self, inputs: Tensor, scale: Array, shift: Array, epsilon: float) -> Tensor:
        """Normalize over the features."""
        return _normalized(inputs, -1, epsilon) * scale + shift

    def window_norm(self, windows: Tensor, epsilon: float) -> Tensor:
        """Normalize over the steps."""
        return _normalized(windows, 1, epsilon)

    def step_norm(self, name: str, sequence: Tensor, epsilon: float) -> Tensor:
        """Normalize with the batch's own statistics in training, and keep these."""
        parameters = self.parameters
        if self._training:
            mean, variance = tf.nn.moments(sequence, [1, 2])
            self.statistics[f"{name}/mean"] = tf.stop_gradient(mean)
            self.statistics[f"{name}/variance"] = tf.stop_gradient(variance)
        else:
            mean = parameters[f"{name}/mean"]
            variance = parameters[f"{name}/variance"]
        factor = tf.math.rsqrt(variance + epsilon) * parameters[f"{name}/scale"]
        normalized = (sequence - mean[:, None, None]) * factor[:, None, None]
        return normalized + parameters[f"{name}/shift"]

    def dropout(self, inputs: Tensor, keep_probability: float, site: int) -> Tensor:
        """Drop by a mask that follows from the batch's seed and the site alone."""
        if not self._training or keep_probability == 1.0:
            return inputs
        own_seed = tf.random.experimental.stateless_fold_in(self._seed, site, alg="philox")
        # `auto_select` would pick the generator by the device's kind.
        return tf.nn.experimental.stateless_dropout(
            inputs, 1.0 - keep_probability, own_seed, rng_alg="philox"
        )

    def from_windows(self, compute: Callable[[], Tensor]) -> Tensor:
        """Compute, and stop the gradient."""
        return tf.stop_gradient(compute())

    def unary(self, operation: Unary, inputs: Tensor) -> Tensor:
        """Call TensorFlow's function."""
        if operation == "relu":
            return tf.nn.relu(inputs)
        if operation == "absolute":
            return tf.abs(inputs)
        return getattr(tf.math, operation)(inputs)

    def reduce(
        self, operation: Reduction, inputs: Tensor, axis: int, *, keep_axis: bool = False
    ) -> Tensor:
        """Call TensorFlow's reduction."""
        return getattr(tf, f"reduce_{operation}")(inputs, axis, keepdims=keep_axis)

    def add_n(self, tensors: Sequence[Tensor]) -> Tensor:
        """Add in one operation."""
        return tf.add_n(list(tensors))

    def clip(self, inputs: Tensor, low: float, high: float) -> Tensor:
        """Clip by value."""
        return tf.clip_by_value(inputs, low, high)

    def cut(self, inputs: Tensor, axis: int, begin: int, end: int) -> Tensor:
        """Slice along the axis."""
        return inputs[(*(slice(None),) * axis, slice(begin, end))]

    def concat(self, tensors: Sequence[Tensor], axis: int) -> Tensor:
        """Concatenate."""
        return tf.concat(list(tensors), axis)

    def reshape(self, inputs: Tensor, shape: Sequence[int]) -> Tensor:
        """Reshape."""
        return tf.reshape(inputs, [-1, *shape])

    def transpose(self, inputs: Tensor, order: Sequence[int]) -> Tensor:
        """Transpose."""
        return tf.transpose(inputs, list(order))


def _normalized(inputs: Tensor, axis: int, epsilon: float) -> Tensor:
    mean, variance = tf.nn.moments(inputs, [axis], keepdims=True)
    return (inputs - mean) * tf.math.rsqrt(variance + epsilon)
