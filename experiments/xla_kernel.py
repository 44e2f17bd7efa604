"""What the kernel for XLA costs on a processor.

The gradient of a batch with it over that with the fused kernels.

Both are the product's own function of a batch (`worker_node.gradient`), on the same windows and
parameters, and take turns in one process; a ratio is the median of the rounds' ratios. Processor
seconds are those of the whole process: XLA's threads and TensorFlow's both count. The first call,
in which XLA compiles, is reported by itself.
"""

import statistics
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks.report import arguments, publish
from core.engine.runtime import one_thread_an_operation
from core.inventory import TrainJob
from core.models.network import build
from worker_node.gradient import GradientOfBatch

import tensorflow as tf  # isort: skip

ROUNDS = 15
QUICK_ROUNDS = 3
BATCH = 100
MICRO_BATCHES = 4
STEPS = 128
CHANNELS = 9
CLASSES = 6
CELLS: Mapping[str, Mapping[str, Any]] = {
    "three plain layers, 32 units": {"name": "thesis", "hidden": 32},
    "three plain layers, 128 units": {"name": "thesis", "hidden": 128},
    "residual, 32 units": {"name": "residual", "hidden": 32},
}
KERNELS = ("fused", "xla")
Step = Callable[[], Any]


def step_of(model: Mapping[str, Any], kernel: str) -> Step:
    """A call that computes the gradient of one batch and waits for it."""
    given = {
        "model": {**model, "kernel": kernel},
        "batch_size": BATCH,
        "slots": MICRO_BATCHES,
    }
    job = TrainJob.model_validate(given)
    network = build(job.model, window_steps=STEPS, channels=CHANNELS, classes=CLASSES)
    trained, statistics_ = np.split(network.initial(0), [network.layout.trained_size])
    windows = np.random.default_rng(0).normal(size=(BATCH, STEPS, CHANNELS)).astype(np.float32)
    inputs = tf.constant(windows)
    classes = tf.constant(np.arange(BATCH) % CLASSES, tf.int32)
    values = tf.constant(trained), tf.constant(statistics_), inputs, classes, tf.constant([0, 0])
    of_batch = GradientOfBatch(network, job)
    function = tf.function(lambda *operands: of_batch(*operands).gradient, autograph=False)
    return lambda: function(*values).numpy()


def measured(model: Mapping[str, Any], rounds: int) -> dict[str, Any]:
    """Return seconds of the first call and of all others by kernel, and the gradients' distance."""
    steps = {kernel: step_of(model, kernel) for kernel in KERNELS}
    first = {}
    gradients = {}
    for kernel, step in steps.items():
        begin = time.monotonic()
        gradients[kernel] = step()
        first[kernel] = time.monotonic() - begin
    seconds: dict[str, list[float]] = {kernel: [] for kernel in KERNELS}
    processor: dict[str, list[float]] = {kernel: [] for kernel in KERNELS}
    for _ in range(rounds):
        for kernel, step in steps.items():
            begin = time.monotonic()
            spent = time.process_time()
            step()
            seconds[kernel].append(time.monotonic() - begin)
            processor[kernel].append(time.process_time() - spent)
    apart = np.abs(gradients["xla"] - gradients["fused"]).max() / np.abs(gradients["fused"]).max()
    return {
        "first_seconds": first,
        "seconds": seconds,
        "processor_seconds": processor,
        "apart": float(apart),
    }


def ratio(found: Mapping[str, Any], what: str) -> float:
    """The median of the rounds' ratios, XLA over fused."""
    found_ratio: float = statistics.median(
        xla / fused for xla, fused in zip(found[what]["xla"], found[what]["fused"], strict=True)
    )
    return found_ratio


def main() -> int:
    """Measure every cell and print the object."""
    parser = arguments("xla_kernel", "The kernel for XLA beside the fused kernels on a processor.")
    parser.add_argument("--rounds", type=int, help=f"default {ROUNDS}, with --quick {QUICK_ROUNDS}")
    given = parser.parse_args()
    one_thread_an_operation()
    rows = []
    summary = {}
    for name, model in CELLS.items():
        found = measured(model, given.rounds or (QUICK_ROUNDS if given.quick else ROUNDS))
        rows.append({"cell": name, **found})
        summary[name] = {
            "time_over_fused": round(ratio(found, "seconds"), 2),
            "processor_time_over_fused": round(ratio(found, "processor_seconds"), 2),
            "first_seconds": {
                kernel: round(seconds, 2) for kernel, seconds in found["first_seconds"].items()
            },
            "apart": found["apart"],
        }
        print(f"{name}: {summary[name]}", file=sys.stderr, flush=True)
    publish("xla_kernel", rows, summary, as_json=given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
