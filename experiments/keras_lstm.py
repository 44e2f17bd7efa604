"""Time of one training step.

`keras.layers.LSTM` over `pscluster.keras.LSTM`, the same model otherwise.

A model of one LSTM and one dense layer with Adam, from the same weights on the same windows. Both
steps run in one process, each in a `tf.function`, with the same threads, in turns; a ratio is the
median of the rounds' ratios. The summary has the batch of 32 that `fit` takes by default; the rows
have a large batch too.

Keras does not compile with XLA here: `jit_compile="auto"` is off on a machine without a GPU.
`--xla` measures what it would be beside the two.
"""

import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import core.engine.environment  # noqa: F401  (before tensorflow)
from benchmarks.report import arguments, publish

import keras  # isort: skip
import numpy as np  # isort: skip
import tensorflow as tf  # isort: skip

import pscluster.keras  # isort: skip

STEPS = 128
FEATURES = 9
CLASSES = 6
UNITS = (32, 64, 128)
BATCHES = (32, 128)
HEADLINE_BATCH = 32
QUICK_ROUNDS = 5
ROUNDS = 15
TURN_SECONDS = 0.2
"""A turn is as many steps as fit, and at least one."""
SAME = 1e-5

Step = Callable[[], Any]


def model_of(layer: type, units: int) -> Any:
    """The model with this class of LSTM."""
    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [keras.Input((STEPS, FEATURES)), layer(units), keras.layers.Dense(CLASSES)]
    )


def step_of(model: Any, windows: Any, classes: Any, *, xla: bool = False) -> tuple[Step, Step]:
    """Return the training step as `fit` traces it, and the gradients alone."""
    optimizer = keras.optimizers.Adam(1e-3)
    optimizer.build(model.trainable_variables)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def gradients() -> list[Any]:
        with tf.GradientTape() as tape:
            loss = loss_of(classes, model(windows, training=True))
        return [
            loss,
            *tape.gradient(loss, [variable.value for variable in model.trainable_variables]),
        ]

    def train() -> Any:
        loss, *found = gradients()
        optimizer.apply(found, model.trainable_variables)
        return loss

    compiled = [
        tf.function(function, autograph=False, jit_compile=xla) for function in (train, gradients)
    ]
    return compiled[0], compiled[1]


def measure(units: int, batch: int, rounds: int, *, xla: bool) -> dict[str, Any]:
    """One row. Raises AssertionError when the two do not compute the same."""
    draw = np.random.Generator(np.random.Philox(1))
    windows = tf.constant(draw.standard_normal((batch, STEPS, FEATURES)).astype(np.float32))
    classes = tf.constant(draw.integers(0, CLASSES, batch).astype(np.int32))
    contestants = {"keras": keras.layers.LSTM, "ours": pscluster.keras.LSTM}
    steps = {
        name: step_of(model_of(layer, units), windows, classes)
        for name, layer in contestants.items()
    }
    apart = difference(steps["keras"][1](), steps["ours"][1]())
    if apart > SAME:
        raise AssertionError(
            f"{units} units: the gradients lie {apart:.1e} apart, expected at most {SAME:.0e}"
        )
    if xla:
        steps["keras_xla"] = step_of(model_of(keras.layers.LSTM, units), windows, classes, xla=True)
    trains = {name: train for name, (train, _) in steps.items()}
    times = {
        name: max(1, int(TURN_SECONDS / _seconds(train, 2)[0])) for name, train in trains.items()
    }
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in trains}
    for _ in range(rounds):
        for name, train in trains.items():
            taken[name].append(_seconds(train, times[name]))
    found: dict[str, Any] = {
        "units": units,
        "batch": batch,
        "rounds": rounds,
        "largest_difference": apart,
    }
    for name, turns in taken.items():
        found[name] = {
            "seconds": statistics.median(wall for wall, _ in turns),
            "processor_seconds": statistics.median(processor for _, processor in turns),
        }
        if name != "ours":
            pairs = list(zip(turns, taken["ours"], strict=True))
            found[f"{name}_over_ours"] = statistics.median(one[0] / two[0] for one, two in pairs)
            found[f"{name}_over_ours_processor"] = statistics.median(
                one[1] / two[1] for one, two in pairs
            )
    return found


def difference(one: list[Any], two: list[Any]) -> float:
    """Return the largest difference of two lists of tensors, relative to the values."""
    pairs = [(np.asarray(a), np.asarray(b)) for a, b in zip(one, two, strict=True)]
    return max(float(np.abs(a - b).max() / np.abs(a).max()) for a, b in pairs)


def _seconds(train: Step, times: int) -> tuple[float, float]:
    train()
    began = time.perf_counter()
    processor = time.process_time()
    for _ in range(times):
        loss = train()
    float(loss)
    return (time.perf_counter() - began) / times, (time.process_time() - processor) / times


def summarize(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return ratios by units: wall and processor time at both batches."""
    summary: dict[str, Any] = {
        "keras_over_ours": {},
        "keras_over_ours_processor": {},
        "keras_over_ours_large": {},
    }
    for row in rows:
        units = str(row["units"])
        if row["batch"] == HEADLINE_BATCH:
            summary["keras_over_ours"][units] = row["keras_over_ours"]
            summary["keras_over_ours_processor"][units] = row["keras_over_ours_processor"]
        else:
            summary["keras_over_ours_large"][units] = row["keras_over_ours"]
    return {**summary, "keras_jit_compile_by_default": False, "cores": len(os.sched_getaffinity(0))}


def main() -> None:
    """Measure and print the object."""
    parser = arguments(
        "keras_lstm", "Seconds of a training step: keras.layers.LSTM over pscluster.keras.LSTM."
    )
    parser.add_argument(
        "--xla", action="store_true", help="measure Keras with jit_compile=True too"
    )
    given = parser.parse_args()
    if given.quick:
        rounds = QUICK_ROUNDS
    else:
        rounds = ROUNDS
    rows = [measure(units, batch, rounds, xla=given.xla) for batch in BATCHES for units in UNITS]
    publish("keras_lstm", rows, summarize(rows), as_json=given.json)


if __name__ == "__main__":
    main()
