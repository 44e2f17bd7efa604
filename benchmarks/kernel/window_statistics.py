"""Steps of `spectral` and `hybrid` on windows whose statistics the library remembers, or computes.

`python -m benchmarks.kernel.window_statistics`. Three variants take turns, step by step, in one
process on one thread, on the same batch without augmentation: `remembered`; `computed` in each
step; `in_parts`, computed with the lags of autocorrelation as cuts, a product and a mean. A step is
the gradient of a batch and the parameter servers' Adam. The benchmark ends with status 2 unless all
have the same bits. A ratio is the median of those of the rounds, in processor seconds.
"""

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import core.engine.environment  # noqa: F401  (before tensorflow)
from benchmarks.kernel.cells import CHANNELS, CLASSES, LEARNING_RATE, STEPS
from benchmarks.kernel.ours import one_thread_an_operation
from benchmarks.report import arguments, publish, tell
from core.inventory.slots import LIBRARY, USUAL_SLOTS
from core.inventory.training import TrainJob
from core.models.native import RowsOfSet
from core.models.network import Network, build
from core.models.operations import Operations
from kernels.writing import KernelOperations
from ps_node.arithmetic import arithmetic_of
from ps_node.optimizers.adam import Adam
from worker_node.gradient import GradientOfBatch

import numpy as np  # isort: skip
import tensorflow as tf  # isort: skip

MODELS = {
    "spectral": {"name": "spectral"},
    "hybrid": {"name": "hybrid", "body": "residual", "hidden": 32, "instance_norm": "append"},
}
BATCH = 100
ROUNDS = {"full": 60, "quick": 20, "smoke": 2}
REMEMBERED = "remembered"
Step = Callable[[], Any]


def step_of(network: Network, job: TrainJob, rows: RowsOfSet | None) -> tuple[Step, Any]:
    """Return a step on one thread, and the parameters that it changes."""
    draws = np.random.default_rng(0)
    windows = tf.constant(draws.standard_normal((BATCH, STEPS, CHANNELS)).astype(np.float32))
    labels = tf.constant(draws.integers(0, CLASSES, BATCH).astype(np.int32))
    trained, measured = np.split(network.initial(0), [network.layout.trained_size])
    parameters = tf.Variable(trained)
    optimizer = arithmetic_of(LIBRARY).optimizer(Adam())
    slots = tuple(tf.Variable(tf.zeros_like(parameters)) for _ in optimizer.slot_names)
    updates = tf.Variable(0, dtype=tf.int64)
    gradient_of = GradientOfBatch(network, job, threads=1).of_fit(None, rows)

    @tf.function(autograph=False)
    def step() -> Any:
        seed = tf.constant([0, 0])
        batch = gradient_of(parameters.read_value(), tf.constant(measured), windows, labels, seed)
        count = updates.read_value()
        rate = LEARNING_RATE
        apply = optimizer.apply(parameters, slots, batch.gradient, rate, count)
        with tf.control_dependencies([apply]):
            updates.assign_add(1)
        return batch.loss

    return step, parameters


def measure(model: str, rounds: int) -> dict[str, Any]:
    """Return the row of a network. Raises ValueError where the variants have other bits."""
    settings = {"batch_size": BATCH, "slots": USUAL_SLOTS, "arithmetic": LIBRARY, "augment": None}
    job = TrainJob.model_validate({**settings, "model": MODELS[model]})
    network = build(job.model, window_steps=STEPS, channels=CHANNELS, classes=CLASSES)
    rows = RowsOfSet(tf.range(BATCH), tf.constant([0]), BATCH)
    variants = {
        REMEMBERED: step_of(network, job, rows),
        "computed": step_of(network, job, None),
    }
    with patch.object(KernelOperations, "lagged", Operations.lagged):
        # The program is written when the gradient is made.
        variants["in_parts"] = step_of(network, job, None)
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for step, _ in variants.values():
        step()
    for _ in range(rounds):
        for name, (step, _) in variants.items():
            begin = time.process_time()
            step()
            seconds[name].append(time.process_time() - begin)
    vectors = {parameters.numpy().tobytes() for _, parameters in variants.values()}
    if len(vectors) > 1:
        raise ValueError(f"{model}: the variants have other bits after {rounds + 1} steps")
    row: dict[str, Any] = {"network": model, "rounds": rounds}
    for name, readings in seconds.items():
        row[f"{name}_processor_seconds"] = statistics.median(readings)
        if name != REMEMBERED:
            pairs = zip(readings, seconds[REMEMBERED], strict=True)
            row[f"{name}_over_{REMEMBERED}"] = statistics.median(a / b for a, b in pairs)
    return row


def main() -> None:
    """Measure and print the object; status 2 with one line where bits differ."""
    name = "kernel.window_statistics"
    options = arguments(name, (__doc__ or "").partition("\n")[0]).parse_args()
    one_thread_an_operation(1)
    rows = []
    for model in MODELS:
        try:
            rows.append(measure(model, ROUNDS[options.size]))
        except ValueError as problem:
            tell(f"benchmarks.{name}: {problem}")
            sys.exit(2)
        tell(rows[-1])
    publish(
        name, rows, {row["network"]: row[f"in_parts_over_{REMEMBERED}"] for row in rows}, options
    )


if __name__ == "__main__":
    main()
