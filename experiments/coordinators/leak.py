"""One contestant of `experiments.leak`: makes the calls and prints their cost as JSON.

`--worker` is the process whose anonymous memory is read before and after; the first calls, in which
graphs are instantiated and pools fill, are not counted.
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import core.engine.environment  # noqa: F401  (before tensorflow)
from benchmarks.memory import anonymous_bytes
from benchmarks.wire.in_keras import strategy_of
from core.engine.dispatcher import Dispatcher
from core.engine.messages import Item
from core.engine.runtime import Peers, Runtime, device, trace
from core.inventory import Inventory, load

import tensorflow as tf  # isort: skip

SIZE = 27_590
"""Elements of the vector: the parameters of the thesis's network with 32 units."""
BATCH = 100
CHANNELS = 9
FIGURES = 7
WARM_UP_CALLS = 1_000
JOIN_SECONDS = 60.0


def argument_values(number: int) -> tuple[Any, ...]:
    """The arguments of an update of `async`."""
    return (
        np.int64(number),
        np.arange(BATCH, dtype=np.int32),
        np.float32(0.01),
        np.array([1, number], np.int32),
        np.zeros((2, CHANNELS), np.float32),
        np.int64(71),
    )


def signature() -> list[Any]:
    """Their types."""
    return [tf.TensorSpec(np.shape(value), np.asarray(value).dtype) for value in argument_values(0)]


def update(
    variable: Any, number: Any, rows: Any, rate: Any, seed: Any, standardization: Any, owner: Any
) -> Any:
    """Pull, push, answer; the answer depends on every argument."""
    pulled = variable.read_value()
    pushed = variable.assign_add(pulled * 0.0 + rate, read_value=False)
    with tf.control_dependencies([pushed] if pushed is not None else []):
        said = [
            tf.cast(tf.reduce_sum(value), tf.float64)
            for value in (number, rows, rate, seed, standardization)
        ]
        return tf.stack([*said, tf.cast(owner, tf.float64), tf.cast(pulled[0], tf.float64)])


def ours(inventory: Inventory) -> tuple[Callable[[int], None], Callable[[], None]]:
    """A function that makes calls, and one that leaves the cluster."""
    servers = inventory.of_role("ps")
    workers = inventory.of_role("worker")
    coordinator = inventory.task("coordinator", 0).address
    runtime = Runtime(Peers(coordinator, (servers[0].address,), (workers[0].address,)))
    with tf.device(device("ps", 0)):
        variable = tf.Variable(tf.zeros([SIZE]))
    function = trace(lambda *given: update(variable, *given), *signature())
    dispatcher = Dispatcher(runtime)
    dispatcher.wait_for_workers(1, JOIN_SECONDS)

    def calls(count: int) -> None:
        answers = sum(
            outcome.value.shape == (FIGURES,)
            for outcome in dispatcher.run(
                Item(number, function, argument_values(number)) for number in range(count)
            )
        )
        assert answers == count

    def close() -> None:
        dispatcher.close()
        runtime.close()

    return calls, close


def stock(inventory: Inventory) -> tuple[Callable[[int], None], Callable[[], None]]:
    """The same through ParameterServerStrategy and ClusterCoordinator."""
    strategy = strategy_of(inventory)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        variable = tf.Variable(tf.zeros([SIZE]))
    function = tf.function(
        lambda *given: update(variable, *given), input_signature=signature(), autograph=False
    )

    def calls(count: int) -> None:
        for number in range(count):
            assert coordinator.schedule(function, args=argument_values(number)).fetch().shape == (
                FIGURES,
            )

    return calls, lambda: None


def main() -> None:
    """Make the calls and print the row."""
    parser = argparse.ArgumentParser(prog="python -m experiments.coordinators.leak")
    parser.add_argument("contestant", choices=("ours", "stock"))
    parser.add_argument("--inventory", required=True)
    parser.add_argument("--calls", type=int, required=True)
    parser.add_argument("--worker", type=int, required=True, help="process id")
    given = parser.parse_args()
    calls, close = {"ours": ours, "stock": stock}[given.contestant](load(given.inventory))
    calls(WARM_UP_CALLS)
    memory = anonymous_bytes(given.worker)
    processor = time.process_time()
    begin = time.monotonic()
    calls(given.calls)
    seconds = time.monotonic() - begin
    cpu = time.process_time() - processor
    grown = anonymous_bytes(given.worker) - memory
    found = {
        "bytes_a_call": grown / given.calls,
        "coordinator_cpu_ms_a_call": 1_000.0 * cpu / given.calls,
        "calls_per_second": given.calls / seconds,
    }
    print(json.dumps(found), flush=True)
    close()
    os._exit(0)  # TensorFlow's server threads cannot be joined


if __name__ == "__main__":
    main()
