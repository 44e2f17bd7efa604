"""Keras models whose call changes values in a loop or branch, or makes weights as it runs."""

from typing import Any

import core.engine.environment  # noqa: F401  (before tensorflow)

import keras  # isort: skip
from keras import layers  # isort: skip


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


def _of_cell(inner: Any, outputs: int, shape: tuple[int, ...]) -> Any:
    return keras.Sequential([keras.Input(shape), layers.RNN(Cell(8, inner)), layers.Dense(outputs)])


def dropout_in_a_cell_and_behind_it(shape: tuple[int, ...], outputs: int) -> Any:
    """One layer inside and behind the loop."""
    dropout = layers.Dropout(0.5)
    return keras.Sequential(
        [keras.Input(shape), layers.RNN(Cell(8, dropout)), dropout, layers.Dense(outputs)]
    )


def normalization_in_a_cell(shape: tuple[int, ...], outputs: int) -> Any:
    """Moving averages that move at each step."""
    return _of_cell(layers.BatchNormalization(momentum=0.9), outputs, shape)


def counter_in_a_cell(shape: tuple[int, ...], outputs: int) -> Any:
    """A counter that the answers depend on."""
    return _of_cell(Counting(), outputs, shape)


def normalization_at_each_time(shape: tuple[int, ...], outputs: int) -> Any:
    """TimeDistributed around normalization and dropout."""
    return keras.Sequential(
        [
            keras.Input(shape),
            layers.TimeDistributed(layers.BatchNormalization(momentum=0.9)),
            layers.TimeDistributed(layers.Dropout(0.5)),
            layers.Flatten(),
            layers.Dense(outputs),
        ]
    )


def branch(shape: tuple[int, ...], outputs: int) -> Any:
    """A branch of the graph with values that it changes."""
    return keras.Sequential([keras.Input(shape), layers.Flatten(), Branch(), layers.Dense(outputs)])


def late_cells(shape: tuple[int, ...], outputs: int) -> Any:
    """Stacked cells without build(), and dropout behind them."""
    cells = layers.RNN([LateCell(6), LateCell(5)])
    return keras.Sequential([keras.Input(shape), cells, layers.Dropout(0.5), layers.Dense(outputs)])


LOOPING = {
    make.__name__: (make, (7, 3), "float32")
    for make in (
        dropout_in_a_cell_and_behind_it,
        normalization_in_a_cell,
        counter_in_a_cell,
        normalization_at_each_time,
        branch,
        late_cells,
    )
}
