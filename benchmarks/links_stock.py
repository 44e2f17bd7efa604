"""The same training under ParameterServerStrategy, weights read once a step, on demand: `benchmarks.links_stock`."""

import argparse
import os

import cluster.engine.environment  # noqa: F401  (before tensorflow)
from benchmarks.rounds import serve
from benchmarks.wire_keras import batches, step_of, strategy_of
from benchmarks.wire_network import LEARNING_RATE, ResidualBidirectional, keras_model, keras_weights
from cluster.inventory import load

import keras  # isort: skip
import tensorflow as tf  # isort: skip


def main() -> None:
    """Train for as many steps as each line of standard input says."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.links_stock")
    parser.add_argument("--inventory", required=True)
    strategy = strategy_of(load(parser.parse_args().inventory))
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    network = ResidualBidirectional()
    with strategy.scope():
        model = keras_model()
        model.set_weights(keras_weights(network, network.initial(0)))
        optimizer = keras.optimizers.Adam(LEARNING_RATE)
        optimizer.build(model.trainable_variables)
    step = step_of(strategy, model, optimizer, read_once=True)
    iterator = iter(coordinator.create_per_worker_dataset(batches))

    def run(count: int) -> list[float]:
        losses = [coordinator.schedule(step, args=(iterator,)) for _ in range(count)]
        coordinator.join()
        return [float(loss.fetch()) for loss in losses]

    serve(run)
    os._exit(0)  # the strategy's destructors wait for the servers


if __name__ == "__main__":
    main()
