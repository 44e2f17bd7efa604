"""Keras models whose call changes values in a loop or branch, or makes weights as it runs."""

from typing import Any

from core.ground.lazy import keras
from tests.lazy import layers, own_keras


def _of_cell(inner: Any, outputs: int, shape: tuple[int, ...]) -> Any:
    return keras.Sequential(
        [keras.Input(shape), layers.RNN(own_keras.Cell(8, inner)), layers.Dense(outputs)]
    )


def dropout_in_a_cell_and_behind_it(shape: tuple[int, ...], outputs: int) -> Any:
    """One layer inside and behind the loop."""
    dropout = layers.Dropout(0.5)
    return keras.Sequential(
        [keras.Input(shape), layers.RNN(own_keras.Cell(8, dropout)), dropout, layers.Dense(outputs)]
    )


def normalization_in_a_cell(shape: tuple[int, ...], outputs: int) -> Any:
    """Moving averages that move at each step."""
    return _of_cell(layers.BatchNormalization(momentum=0.9), outputs, shape)


def counter_in_a_cell(shape: tuple[int, ...], outputs: int) -> Any:
    """A counter that the answers depend on."""
    return _of_cell(own_keras.Counting(), outputs, shape)


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
    return keras.Sequential(
        [keras.Input(shape), layers.Flatten(), own_keras.Branch(), layers.Dense(outputs)]
    )


def late_cells(shape: tuple[int, ...], outputs: int) -> Any:
    """Stacked cells without build(), and dropout behind them."""
    cells = layers.RNN([own_keras.LateCell(6), own_keras.LateCell(5)])
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
