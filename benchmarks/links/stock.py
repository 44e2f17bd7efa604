"""The same training under ParameterServerStrategy, weights read once a step, on demand.

`benchmarks.links.stock`.
"""

import argparse
import os

import core.engine.environment  # noqa: F401  (before tensorflow)
from benchmarks.wire.in_keras import steps_of, strategy_of
from benchmarks.wire.steps import serve_rounds
from core.inventory import load

import tensorflow as tf  # isort: skip


def main() -> None:
    """Train for as many steps as each line of standard input says."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.links.stock")
    parser.add_argument("--inventory", required=True)
    parser.add_argument(
        "--our-kernels", action="store_true", help="the engine's layers instead of Keras's"
    )
    given = parser.parse_args()
    strategy = strategy_of(load(given.inventory))
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    serve_rounds(steps_of(strategy, coordinator, read_once=True, our_kernels=given.our_kernels)[1])
    os._exit(0)  # the strategy's destructors wait for the servers


if __name__ == "__main__":
    main()
