"""A step of a Keras app on one worker over the same step in plain Keras, in turn.

Each side has a process of its own.

Ours is what `single` runs: rows gathered from the mapped file, gradient at slices of the flat
vector, clipping, update of the shard. Theirs is a `tf.function` over the same model: gradient tape,
clipping by the global norm, Keras's optimizer. Both have one thread an operation and the same
batches and optimizer. Theirs gets its batch as a tensor, and TensorFlow's graph optimizations as
they are by default; ours turns one off (`core.engine.runtime`).

`nothing` is a model of 30 weights: its step is what a step costs before the model counts.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import numpy as np

from benchmarks.report import arguments, publish
from cluster.apps.app import App
from cluster.apps.app_network import Kind
from cluster.apps.networks import network_of
from cluster.jobs.fit import Update
from cluster.jobs.modes.mode import Setup, Stretch, mode_of
from core.consistency.policy import Grant, Speeds
from core.data.dataset import Dataset
from core.data.examples import batches_of, write_examples
from core.engine.devices import HOST
from core.engine.runtime import one_thread_an_operation
from core.inventory.training import TrainJob
from ps_node.shard import VectorState
from worker_node.recordings import Standardization, WorkerWindows

import keras  # isort: skip
import tensorflow as tf  # isort: skip
from keras import layers  # isort: skip

CLASSES = 6
ROWS = 512
SEED = 1
RATE = 1e-3
CLIP = 1.0
TURNS = 100
QUICK_TURNS = 15
WARM_UP = 3
STEPS_A_TURN = 5
LIMIT = 1.10


def convolutions(input_shape: tuple[int, ...], outputs: int) -> Any:
    """Images: two convolutions with batch normalization and dropout."""
    return keras.Sequential(
        [
            keras.Input(input_shape),
            layers.Conv2D(32, 3, activation="relu"),
            layers.BatchNormalization(),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Dropout(0.2),
            layers.Flatten(),
            layers.Dense(64, "relu"),
            layers.Dense(outputs),
        ]
    )


def recurrent(input_shape: tuple[int, ...], outputs: int) -> Any:
    """Windows: a convolution, batch normalization, dropout and a bidirectional LSTM."""
    return keras.Sequential(
        [
            keras.Input(input_shape),
            layers.Conv1D(32, 5, strides=2, activation="relu"),
            layers.BatchNormalization(),
            layers.Dropout(0.2),
            layers.Bidirectional(layers.LSTM(32)),
            layers.Dense(outputs),
        ]
    )


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
    return keras.Sequential(
        [
            keras.Input(input_shape),
            layers.Dense(256, "relu"),
            layers.Dense(256, "relu"),
            layers.Dense(outputs),
        ]
    )


def nothing(input_shape: tuple[int, ...], outputs: int) -> Any:
    """One layer, which costs nothing."""
    return keras.Sequential([keras.Input(input_shape), layers.Dense(outputs)])


MODELS: dict[str, tuple[Callable[[tuple[int, ...], int], Any], tuple[int, ...]]] = {
    "convolutions": (convolutions, (16, 16, 3)),
    "recurrent": (recurrent, (128, 9)),
    "attention": (attention, (128, 9)),
    "dense": (dense, (64,)),
    "nothing": (nothing, (4,)),
}
MEASURED = [
    ("convolutions", 32),
    ("recurrent", 32),
    ("attention", 32),
    ("dense", 32),
    ("dense", 128),
    ("nothing", 32),
]
"""Models and batches. The limit holds for all but the last one."""


def written(shape: tuple[int, ...], folder: Path) -> Dataset:
    """Noise in a prepared data set."""
    random = np.random.default_rng(0)
    x = random.normal(size=(ROWS, *shape)).astype(np.float32)
    y = np.arange(ROWS) % CLASSES
    batches, labels = batches_of({"x_train": x, "y_train": y, "x_test": x[:8], "y_test": y[:8]})
    return write_examples(batches, folder, name="noise", source="noise", labels=labels)


def ours(make: Callable[..., Any], dataset: Dataset, batch: int) -> Callable[[int], None]:
    """A call of the function that `single` runs."""
    job = TrainJob.model_validate(
        {
            "mode": "single",
            "batch_size": batch,
            "slots": 1,
            "clip_norm": CLIP,
            "label_smoothing": 0.0,
            "optimizer": {"name": "adamw", "learning_rate": RATE},
        }
    )
    network = network_of(
        App("benchmark", Path(__file__), None, {"model": make}), Kind.of(dataset), SEED
    )
    state = VectorState(network.initial(SEED))
    mode = mode_of(Setup(job, network, WorkerWindows(dataset), state, {0: HOST}, Speeds()))
    packed = Standardization.of(dataset, np.arange(8)).packed()
    stretch = Stretch(0, lambda batch: RATE, packed, lambda: 1)

    def step(number: int) -> None:
        rows = (np.arange(batch, dtype=np.int32) + number * batch) % ROWS
        item = mode.item(Grant(number, 0, 1), Update(number, (number,), rows[None]), stretch)
        # As if the policy had completed the step before: its sum is applied by this one's pull.
        before = np.int64(number - 1), np.ones(1, np.float32), np.float32(1.0), np.float32(RATE)
        value = item.function.answer(*before, *item.arguments[len(before) :])
        assert np.isfinite(value).all()

    return step


def plain(make: Callable[..., Any], dataset: Dataset, batch: int) -> Callable[[int], None]:
    """The same step as a person writes it with Keras alone."""
    tf.config.optimizer.set_experimental_options({"arithmetic_optimization": True})
    keras.utils.set_random_seed(SEED)
    model = make(dataset.input_shape, CLASSES)
    optimizer = keras.optimizers.AdamW(RATE, global_clipnorm=CLIP)
    optimizer.build(model.trainable_variables)
    entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    x = np.asarray(dataset.windows())
    y = dataset.classes()

    @tf.function
    def one(inputs: Any, classes: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = entropy(classes, model(inputs, training=True))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    def step(number: int) -> None:
        rows = (np.arange(batch) + number * batch) % ROWS
        assert np.isfinite(one(tf.constant(x[rows]), tf.constant(y[rows])).numpy())

    return step


SIDES = {"ours": ours, "keras": plain}


def serve(side: str, name: str, batch: int) -> None:
    """Be one side: answer each line of input with wall and processor milliseconds a step."""
    one_thread_an_operation()
    make, shape = MODELS[name]
    with tempfile.TemporaryDirectory() as folder:
        step = SIDES[side](make, written(shape, Path(folder)), batch)
        number = 0
        for _ in sys.stdin:
            begin = time.perf_counter()
            processor = time.process_time()
            for _ in range(STEPS_A_TURN):
                step(number)
                number += 1
            taken = time.perf_counter() - begin, time.process_time() - processor
            print(*(1e3 * seconds / STEPS_A_TURN for seconds in taken), flush=True)


class Side:
    """The process of one side."""

    def __init__(self, side: str, name: str, batch: int) -> None:
        given = {"--side": side, "--model": name, "--batch": str(batch)}
        command = [
            sys.executable,
            "-m",
            "experiments.keras_step",
            *(word for pair in given.items() for word in pair),
        ]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def turn(self) -> tuple[float, float]:
        """Milliseconds a step, wall and processor. Raises RuntimeError if the process ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("turn\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().split()
        if len(answer) != 2:
            raise RuntimeError(
                f"one side ended with {self._process.wait()}: see its messages above"
            )
        return float(answer[0]), float(answer[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self._process.communicate()  # closes its standard input: it ends


def measure(name: str, batch: int, turns: int) -> dict[str, Any]:
    """Return the medians of each side in milliseconds a step, and of the pairs' ratios."""
    with Side("ours", name, batch) as mine, Side("keras", name, batch) as theirs:
        pairs = [(mine.turn(), theirs.turn()) for _ in range(WARM_UP + turns)][WARM_UP:]
    found: dict[str, Any] = {"model": name, "batch": batch}
    for place, what in enumerate(("", "processor_")):
        found[f"ours_{what}ms"] = round(statistics.median(one[place] for one, _ in pairs), 3)
        found[f"keras_{what}ms"] = round(statistics.median(two[place] for _, two in pairs), 3)
        ratio = statistics.median(one[place] / two[place] for one, two in pairs)
        found[f"ours_over_keras{'_processor' * place}"] = round(ratio, 3)
    return found


def summarize(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The ratios by model and batch, and the fixed cost of a step in microseconds."""
    fixed = next(row for row in rows if row["model"] == "nothing")
    counted = [row for row in rows if row is not fixed]
    ratios = {
        key: {f"{row['model']}_{row['batch']}": row[key] for row in counted}
        for key in ("ours_over_keras", "ours_over_keras_processor")
    }
    return {
        **ratios,
        "fixed_us": {side: round(1e3 * fixed[f"{side}_processor_ms"]) for side in SIDES},
        "limit": LIMIT,
    }


def main() -> int:
    """Measure and print the object; status 1 if a step costs more processor time than it may."""
    parser = arguments("keras_step", "A step of a Keras app over the same step in plain Keras.")
    for flag in ("--side", "--model", "--batch"):
        parser.add_argument(flag, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.side:
        serve(given.side, given.model, int(given.batch))
        return 0
    rows = []
    for name, batch in MEASURED:
        rows.append(measure(name, batch, QUICK_TURNS if given.quick else TURNS))
        print(
            "{model}, batch {batch}: {ours_ms} ms, Keras {keras_ms} ms: {ours_over_keras},"
            " processor time {ours_over_keras_processor}".format(**rows[-1]),
            file=sys.stderr,
        )
    summary = summarize(rows)
    publish("keras_step", rows, summary, as_json=given.json)
    return int(max(summary["ours_over_keras_processor"].values()) > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
