"""Our training step, a process of its own: `python -m benchmarks.kernel.ours`.

What a worker computes between pull and push (`worker_node.gradient`), and the parameter server's
Adam, by the library or by TensorFlow. The library takes a thread a core. Of TensorFlow an operation
has one thread, as in a worker, and the slots lie side by side; there are as many threads as in a
worker of the shipped local cluster of two, or as there are cores if those are more.
"""

import os
from dataclasses import fields
from typing import Any

import core.engine.environment  # noqa: F401  (before tensorflow)
from benchmarks.kernel.cells import Cell, matrix_parameters
from benchmarks.kernel.serving import Step, serve
from core.models.native import OWN_THREADS
from ps_node.arithmetic import arithmetic_of
from ps_node.optimizers.adam import Adam
from worker_node.gradient import GradientOfBatch

import numpy as np  # isort: skip
import tensorflow as tf  # isort: skip

PRODUCT = 2048
OPERATIONS = 4
"""TensorFlow's operations that run side by side at least; a worker has two more."""


def one_thread_an_operation(cores: int) -> None:
    """An operation has one thread; as many as there are cores run side by side."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(max(OPERATIONS, cores))


def build(order: dict[str, Any]) -> tuple[Step, dict[str, Any]]:
    """The step of one cell, and what it is."""
    arrays = np.load(order["arrays"])
    cell = Cell(
        **{
            key: value
            for key, value in order.items()
            if key in {field.name for field in fields(Cell)}
        }
    )
    network = cell.network()
    job = cell.job(order["slots"], order["arithmetic"])
    optimizer = arithmetic_of(job.arithmetic).optimizer(Adam())
    layout = network.layout
    vector = layout.pack({slot.spec.name: arrays[slot.spec.name] for slot in layout.slots})
    parameters = tf.Variable(vector[: layout.trained_size])
    slots = tuple(tf.Variable(tf.zeros_like(parameters)) for _ in optimizer.slot_names)
    updates = tf.Variable(0, dtype=tf.int64)
    statistics = tf.constant(vector[layout.trained_size :])
    windows = tf.constant(arrays["windows"])
    classes = tf.constant(arrays["classes"])
    gradient_of = GradientOfBatch(network, job, threads=order.get("threads", OWN_THREADS))

    @tf.function(autograph=False)
    def train() -> Any:
        batch = gradient_of(
            parameters.read_value(), statistics, windows, classes, tf.constant([0, 0])
        )
        apply = optimizer.apply(
            parameters, slots, batch.gradient, order["learning_rate"], updates.read_value()
        )
        with tf.control_dependencies([apply]):
            updates.assign_add(1)
        return batch.loss

    return lambda: float(train()), {
        "variant": f"{job.arithmetic}, {job.pieces} slots",
        "matrix_parameters": matrix_parameters(network),
    }


def main() -> None:
    """Serve until standard input ends."""
    one_thread_an_operation(len(os.sched_getaffinity(0)))
    factor = tf.random.uniform([PRODUCT, PRODUCT])
    serve(build, lambda: tf.matmul(factor, factor).numpy())


if __name__ == "__main__":
    main()
