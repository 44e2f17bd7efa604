"""Classes of Keras as people write them. Tests load it by `tests.lazy`: it loads Keras."""

from typing import Any

import core.engine.graph_options  # noqa: F401  (before keras)
from core.ground.lazy import tf

import keras  # isort: skip
from keras import layers, losses, optimizers  # isort: skip


class Cell(layers.Layer):
    """A recurrent cell of one's own around a layer that changes a value at each step."""

    def __init__(self, units: int, inner: Any) -> None:
        super().__init__()
        self.units = self.state_size = units
        self.inner = inner

    def build(self, shape: tuple[int, ...]) -> None:
        """Make the weights."""
        self.kernel = self.add_weight(shape=(shape[-1], self.units), name="kernel")
        if not self.inner.built:
            self.inner.build((None, self.units))

    def call(self, inputs: Any, states: Any, training: bool = False) -> Any:
        """One step."""
        hidden = self.inner(keras.ops.tanh(inputs @ self.kernel + states[0]), training=training)
        return hidden, [hidden]


class LateCell(layers.Layer):
    """A cell without build(): its weights are there once it has run."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.state_size = units
        self.inputs, self.states = layers.Dense(units), layers.Dense(units, use_bias=False)

    def call(self, inputs: Any, states: Any) -> Any:
        """One step."""
        hidden = keras.ops.tanh(self.inputs(inputs) + self.states(states[0]))
        return hidden, [hidden]


class Counting(layers.Layer):
    """Counts its calls, and answers with more the more it has counted."""

    def build(self, shape: tuple[int, ...]) -> None:
        """Make the counter."""
        self.count = self.add_weight(shape=(), initializer="zeros", trainable=False, name="count")

    def call(self, inputs: Any, training: bool = False) -> Any:
        """Count in training."""
        if training:
            self.count.assign_add(1.0)
        return inputs * (1.0 + self.count)


class Branch(layers.Layer):
    """Drops values, and counts, where the batch says so."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout, self.counting = layers.Dropout(0.5), Counting()

    def build(self, shape: tuple[int, ...]) -> None:
        """Make the counter."""
        self.counting.build(shape)

    def call(self, inputs: Any, training: bool = False) -> Any:
        """Take the one way or the other."""
        return keras.ops.cond(
            keras.ops.sum(inputs * inputs) > 0.0,
            lambda: self.counting(self.dropout(inputs, training=training), training=training),
            lambda: inputs,
        )


@keras.saving.register_keras_serializable("zoo")
class Gated(keras.Model):
    """A subclassed model with an own weight, a layer used twice, and a dropout."""

    def __init__(self, outputs: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.outputs = outputs
        self.twice, self.head = layers.Dense(12, "tanh"), layers.Dense(outputs)
        self.drop, self.norm = layers.AlphaDropout(0.2), layers.UnitNormalization()

    def build(self, input_shape: Any) -> None:
        """The gate."""
        self.gate = self.add_weight(shape=(12,), initializer="ones", name="gate")
        super().build(input_shape)

    def call(self, inputs: Any) -> Any:
        """Both uses add to one gradient."""
        hidden = self.twice(inputs) * self.gate
        self.add_loss(1e-3 * keras.ops.sum(keras.ops.square(self.gate)))
        return self.head(self.drop(self.norm(self.twice(hidden))))

    def get_config(self) -> dict[str, Any]:
        """For `.keras` files."""
        return {**super().get_config(), "outputs": self.outputs}


class GatedInside(keras.Model):
    """Its last layer is a sigmoid, its answers are not."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.head = layers.Dense(outputs)
        self.gate = layers.Dense(3, activation="sigmoid")

    def call(self, inputs: Any) -> Any:
        return self.head(self.gate(inputs) * inputs)


class Scaled(layers.Layer):
    """Has a weight that `how` uses: not at all, behind a stop, or for Keras's fit alone."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.inner = how, layers.Dense(3)

    def build(self, shape: Any) -> None:
        self.inner.build(shape)

    def call(self, inputs: Any) -> Any:
        if self.how == "unused":
            return inputs
        if self.how == "recomputed":
            return tf.recompute_grad(lambda x: self.inner(x))(inputs)
        return inputs * keras.ops.stop_gradient(keras.ops.sum(self.inner.kernel) + self.inner.bias)


class OwnLoss(losses.Loss):
    """Half of the absolute difference."""

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """As Keras calls it."""
        return keras.ops.mean(keras.ops.abs(y_true - y_pred), -1) / 2


class OwnSchedule(optimizers.schedules.LearningRateSchedule):
    """Has no get_config()."""

    def __call__(self, step: Any) -> float:
        """As Keras calls it."""
        return 0.1
