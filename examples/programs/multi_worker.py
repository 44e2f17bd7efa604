"""Fits a line on equal workers that add up their gradients.

A custom loop of MultiWorkerMirroredStrategy.

    fab job run --on workers examples/programs/multi_worker.py -- --steps 60

What TensorFlow's tutorial on multi-worker training does, with nothing of pscluster in it. Each
worker writes what it found into its own working folder.
"""

import argparse
import json
from pathlib import Path

import tensorflow as tf

SLOPE, OFFSET = 3.0, -2.0


def main() -> None:
    """Fit the line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=64, help="of all workers together")
    parser.add_argument("--rate", type=float, default=0.3)
    given = parser.parse_args()

    strategy = (
        tf.distribute.MultiWorkerMirroredStrategy()
    )  # before anything else: it starts this worker's server
    resolver = strategy.cluster_resolver
    with strategy.scope():
        slope, offset = tf.Variable(0.0), tf.Variable(0.0)

    def batches(context: tf.distribute.InputContext) -> tf.data.Dataset:
        x = tf.linspace(-1.0, 1.0, 4096)
        points = tf.data.Dataset.from_tensor_slices((x, SLOPE * x + OFFSET))
        mine = (
            points.shard(context.num_input_pipelines, context.input_pipeline_id)
            .shuffle(4096, seed=0)
            .repeat()
        )
        return mine.batch(context.get_per_replica_batch_size(given.batch))

    iterator = iter(strategy.distribute_datasets_from_function(batches))

    @tf.function  # type: ignore[untyped-decorator]
    def step(iterator: tf.data.Iterator) -> tf.Tensor:
        def replica(batch: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
            x, y = batch
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(slope * x + offset - y))
            gradients = tf.distribute.get_replica_context().all_reduce(
                tf.distribute.ReduceOp.MEAN, tape.gradient(loss, (slope, offset))
            )
            for variable, gradient in zip((slope, offset), gradients, strict=True):
                variable.assign_sub(given.rate * gradient)
            return loss

        losses = strategy.run(replica, args=(next(iterator),))
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)

    loss = float("nan")
    for _ in range(given.steps):
        loss = float(step(iterator))
    print(
        f"worker {resolver.task_id} of {strategy.num_replicas_in_sync}: "
        f"y = {slope.numpy():.4f} x {offset.numpy():+.4f}"
    )
    found = {"slope": float(slope.numpy()), "offset": float(offset.numpy()), "loss": loss}
    Path("line.json").write_text(json.dumps(found))
    if loss > 0.01:
        raise SystemExit(f"expected a loss of at most 0.01 after {given.steps} steps")


if __name__ == "__main__":
    main()
