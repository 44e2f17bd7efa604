"""Three plain layers in Keras under ParameterServerStrategy.

`python -m benchmarks.coordinators.memory`.

The loop is the tutorial's (`benchmarks.wire.in_keras`), each worker holding the whole training set
as the tutorial's `from_tensor_slices` does. Prints one JSON object: how many windows were trained
on, and how many parameters there are.
"""

import argparse
import json
import os
from typing import Any

import core.engine.environment  # noqa: F401  (before tensorflow)
from benchmarks.wire.in_keras import step_of, strategy_of
from benchmarks.wire.network import LEARNING_RATE, PROBLEM, windows
from core.inventory import load

import keras  # isort: skip
import tensorflow as tf  # isort: skip

BATCH = 100
LAYERS = 3
TRAIN_WINDOWS = 4032
"""As the job that is measured beside it: its batch, its layers, the windows of the synthetic
recordings."""


def plain_layers(units: int) -> Any:
    """`LAYERS` LSTM layers of `units`, the classes from the last step's state."""
    stack = [
        keras.layers.LSTM(units, return_sequences=layer < LAYERS - 1) for layer in range(LAYERS)
    ]
    inputs = keras.Input((PROBLEM.window_steps, PROBLEM.channels))
    return keras.Sequential([inputs, *stack, keras.layers.Dense(PROBLEM.classes)])


def batches() -> Any:
    """The data set every worker makes for itself."""
    return (
        tf.data.Dataset.from_tensor_slices(windows(TRAIN_WINDOWS))
        .repeat()
        .batch(BATCH, drop_remainder=True)
    )


def main() -> None:
    """Train for the steps asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coordinators.memory")
    parser.add_argument("--inventory", required=True)
    parser.add_argument("--units", type=int, default=32)
    parser.add_argument("--steps", type=int, default=40)
    given = parser.parse_args()
    strategy = strategy_of(load(given.inventory))
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        model = plain_layers(given.units)
        optimizer = keras.optimizers.Adam(LEARNING_RATE)
        optimizer.build(model.trainable_variables)
    step = step_of(strategy, model, optimizer, read_once=False)
    iterator = iter(coordinator.create_per_worker_dataset(batches))
    for _ in range(given.steps):
        coordinator.schedule(step, args=(iterator,))
    coordinator.join()
    print(
        json.dumps({"windows": given.steps * BATCH, "parameters": model.count_params()}), flush=True
    )
    os._exit(0)  # the strategy's destructors wait for the servers


if __name__ == "__main__":
    main()
