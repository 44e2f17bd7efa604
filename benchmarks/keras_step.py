"""A step of a Keras app on one worker over the same step in plain Keras, in turn in one process.

Ours is what `single` runs: rows gathered from the mapped file, gradient at slices of the flat vector, clipping, update
of the shard. Theirs is a `tf.function` over the same model: gradient tape, clipping by the global norm, Keras's
optimizer. Both get batches of 32, one thread an operation, and the same optimizer. Theirs gets its batch as a tensor.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import arguments, publish
from cluster.apps.app import App
from cluster.apps.networks import Kind, network_of
from cluster.consistency.policy import Grant, Speeds
from cluster.data.dataset import Dataset
from cluster.data.examples import batches_of, write_examples
from cluster.engine.runtime import one_thread_an_operation
from cluster.inventory.training import TrainJob
from cluster.jobs.fit import Update
from cluster.jobs.modes.mode import Setup, Stretch, mode_of
from cluster.jobs.session import DEVICE
from ps_node.shard import VectorState
from worker_node.recordings import Standardization, WorkerWindows

import keras  # isort: skip
import tensorflow as tf  # isort: skip
from keras import layers  # isort: skip

BATCH, CLASSES, ROWS, SEED, RATE, CLIP = 32, 6, 512, 1, 1e-3, 1.0
STEPS, QUICK_STEPS, WARM_UP, AT_ONCE = 200, 40, 5, 10
LIMIT = 1.10


def convolutions(input_shape: tuple[int, ...], outputs: int) -> Any:
    """Images: two convolutions with batch normalization and dropout."""
    return keras.Sequential([
        keras.Input(input_shape), layers.Conv2D(32, 3, activation="relu"), layers.BatchNormalization(),
        layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D(), layers.Dropout(0.2), layers.Flatten(),
        layers.Dense(64, "relu"), layers.Dense(outputs),
    ])  # fmt: skip


def recurrent(input_shape: tuple[int, ...], outputs: int) -> Any:
    """Windows: a convolution, batch normalization, dropout and a bidirectional LSTM."""
    return keras.Sequential([
        keras.Input(input_shape), layers.Conv1D(32, 5, strides=2, activation="relu"), layers.BatchNormalization(),
        layers.Dropout(0.2), layers.Bidirectional(layers.LSTM(32)), layers.Dense(outputs),
    ])  # fmt: skip


def attention(input_shape: tuple[int, ...], outputs: int) -> Any:
    """Windows: one block of a small Transformer."""
    inputs = keras.Input(input_shape)
    hidden = layers.Dense(32)(inputs)
    normal = layers.LayerNormalization()(hidden)
    hidden = layers.Add()([hidden, layers.MultiHeadAttention(4, 8, dropout=0.1)(normal, normal)])
    wide = layers.Dense(64, "relu")(layers.LayerNormalization()(hidden))
    hidden = layers.Add()([hidden, layers.Dense(32)(wide)])
    return keras.Model(inputs, layers.Dense(outputs)(layers.GlobalAveragePooling1D()(hidden)))


def dense(input_shape: tuple[int, ...], outputs: int) -> Any:
    """Columns: three dense layers. A step is short, so what is not the model shows most."""
    return keras.Sequential([
        keras.Input(input_shape), layers.Dense(256, "relu"), layers.Dense(256, "relu"), layers.Dense(outputs)
    ])  # fmt: skip


MODELS: dict[str, tuple[Callable[[tuple[int, ...], int], Any], tuple[int, ...]]] = {
    "convolutions": (convolutions, (16, 16, 3)),
    "recurrent": (recurrent, (128, 9)),
    "attention": (attention, (128, 9)),
    "dense": (dense, (64,)),
}


def written(shape: tuple[int, ...], folder: Path) -> Dataset:
    """Noise in a prepared data set."""
    random = np.random.default_rng(0)
    x, y = random.normal(size=(ROWS, *shape)).astype(np.float32), np.arange(ROWS) % CLASSES
    batches, labels = batches_of({"x_train": x, "y_train": y, "x_test": x[:8], "y_test": y[:8]})
    return write_examples(batches, folder, name="noise", source="noise", labels=labels)


def ours(make: Callable[..., Any], dataset: Dataset) -> Callable[[int], None]:
    """A call of the function that `single` runs."""
    job = TrainJob.model_validate(
        {"mode": "single", "batch_size": BATCH, "micro_batches": 1, "clip_norm": CLIP, "label_smoothing": 0.0,
         "optimizer": {"name": "adamw", "learning_rate": RATE}}
    )  # fmt: skip
    network = network_of(App("benchmark", Path(__file__), None, {"model": make}), Kind.of(dataset), SEED)
    state = VectorState(network.initial(SEED))
    mode = mode_of(Setup(job, network, WorkerWindows(dataset), state, {0: DEVICE}, 1, Speeds()))
    packed = Standardization.of(dataset, np.arange(8)).packed()
    stretch = Stretch(0, lambda batch: RATE, packed, lambda: 1)

    def step(number: int) -> None:
        rows = (np.arange(BATCH, dtype=np.int32) + number * BATCH) % ROWS
        item = mode.item(Grant(number, 0, 1), Update(number, (number,), rows[None]), stretch)
        # As if the policy had completed the step before: its sum is applied by this one's pull.
        before = np.int64(number - 1), np.ones(1, np.float32), np.float32(1.0), np.float32(RATE)
        value = mode.functions[item.function].answer(*before, *item.arguments[len(before) :])
        assert np.isfinite(value).all()

    return step


def plain(make: Callable[..., Any], dataset: Dataset) -> Callable[[int], None]:
    """The same step as a person writes it with Keras alone."""
    keras.utils.set_random_seed(SEED)
    model = make(dataset.input_shape, CLASSES)
    optimizer = keras.optimizers.AdamW(RATE, global_clipnorm=CLIP)
    optimizer.build(model.trainable_variables)
    entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    x, y = np.asarray(dataset.windows()), dataset.classes()

    @tf.function
    def one(inputs: Any, classes: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = entropy(classes, model(inputs, training=True))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    def step(number: int) -> None:
        rows = (np.arange(BATCH) + number * BATCH) % ROWS
        assert np.isfinite(one(tf.constant(x[rows]), tf.constant(y[rows])).numpy())

    return step


def measure(name: str, steps: int) -> dict[str, Any]:
    """Median milliseconds of a step of each, some steps of one and then of the other."""
    make, shape = MODELS[name]
    with tempfile.TemporaryDirectory() as folder:
        dataset = written(shape, Path(folder))
        sides = {"ours": ours(make, dataset), "keras": plain(make, dataset)}
        times: dict[str, list[float]] = {side: [] for side in sides}
        numbers = dict.fromkeys(sides, 0)
        for turn in range(-WARM_UP, steps // AT_ONCE):
            for side, step in sides.items():
                for _ in range(AT_ONCE):
                    begin = time.perf_counter()
                    step(numbers[side])
                    numbers[side] += 1
                    if turn >= 0:
                        times[side].append(1e3 * (time.perf_counter() - begin))
    medians = {side: statistics.median(taken) for side, taken in times.items()}
    return {
        "model": name,
        **{f"{side}_ms": round(median, 3) for side, median in medians.items()},
        "ours_over_keras": round(medians["ours"] / medians["keras"], 3),
    }


def main() -> int:
    """Measure and print the object; status 1 if a step costs more than it may."""
    given = arguments("keras_step", "A step of a Keras app over the same step in plain Keras.").parse_args()
    one_thread_an_operation()
    rows = []
    for name in MODELS:
        rows.append(measure(name, QUICK_STEPS if given.quick else STEPS))
        print("{model}: {ours_ms} ms, Keras {keras_ms} ms, {ours_over_keras}".format(**rows[-1]), file=sys.stderr)
    ratios = {row["model"]: row["ours_over_keras"] for row in rows}
    publish("keras_step", rows, {"ours_over_keras": ratios, "limit": LIMIT}, as_json=given.json)
    return int(max(ratios.values()) > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
