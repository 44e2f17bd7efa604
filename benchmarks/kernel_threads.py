"""The threads of a worker: what `benchmarks.kernel` gives our step and Keras's when the batch is split."""

import cluster.engine.environment  # noqa: F401  (before tensorflow)

import tensorflow as tf  # isort: skip

WORKER_THREADS = 2 + 2
"""Workers + 2, as `RoleOptions.inter_op_threads` says."""


def one_thread_an_operation(cores: int) -> None:
    """An operation has one thread; as many operations run side by side as in a worker, or as there are cores."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(max(WORKER_THREADS, cores))
