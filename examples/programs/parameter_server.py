"""Fits a line on parameter servers.

A custom loop, a data set for each worker, steps scheduled by a coordinator.

    fab job run examples/programs/parameter_server.py -- --steps 400

What TensorFlow's tutorial on parameter servers does, with nothing of pscluster in it: TF_CONFIG
says where to run.
"""

import argparse

import tensorflow as tf

SLOPE, OFFSET = 3.0, -2.0


def main() -> None:
    """Fit the line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rate", type=float, default=0.1)
    given = parser.parse_args()

    cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = tf.distribute.ParameterServerStrategy(cluster)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)

    with strategy.scope():
        slope, offset = tf.Variable(0.0), tf.Variable(0.0)

    def batches(_: tf.distribute.InputContext) -> tf.data.Dataset:
        random = tf.data.Dataset.random(rerandomize_each_iteration=True)
        points = random.map(lambda number: 2.0 * tf.cast(number, tf.float32) / 2.0**32 - 1.0)
        return points.map(lambda x: (x, SLOPE * x + OFFSET)).batch(given.batch).prefetch(2)

    @tf.function  # type: ignore[untyped-decorator]
    def distributed() -> tf.data.Dataset:
        return strategy.distribute_datasets_from_function(batches)

    iterator = iter(coordinator.create_per_worker_dataset(distributed))

    @tf.function  # type: ignore[untyped-decorator]
    def step(iterator: tf.data.Iterator) -> tf.Tensor:
        def replica(batch: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
            x, y = batch
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(slope * x + offset - y))
            for variable, gradient in zip(
                (slope, offset), tape.gradient(loss, (slope, offset)), strict=True
            ):
                variable.assign_sub(given.rate * gradient)
            return loss

        return strategy.run(replica, args=(next(iterator),))

    loss = None
    for _ in range(given.steps):
        loss = coordinator.schedule(step, args=(iterator,))
    coordinator.join()
    last = float(coordinator.fetch(loss)) if loss is not None else float("nan")
    print(f"{given.steps} steps: y = {slope.numpy():.3f} x {offset.numpy():+.3f}, loss {last:.6f}")
    if last > 0.01:
        raise SystemExit(f"expected a loss of at most 0.01 after {given.steps} steps")


if __name__ == "__main__":
    main()
