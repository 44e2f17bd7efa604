"""The coordinator of `benchmarks.stopped`: updates while half of its workers are stopped; prints the row."""

import argparse
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import cluster.engine.environment  # noqa: F401  (before tensorflow)
from cluster.engine.dispatcher import Dispatcher
from cluster.engine.messages import Item
from cluster.engine.runtime import Peers, Runtime, device, trace
from cluster.inventory import Inventory, load
from cluster.parameters import Layout, ParameterSpec
from ps_node.optimizers.sgd import MomentumSGD
from ps_node.shard import VectorState
from ps_node.shards import ParameterShards

import tensorflow as tf  # isort: skip

SIZE = 27_590
"""Elements of the vector: the parameters of the thesis's network with 32 units."""
WARM_REPLIES = 10
"""Of each worker before any is stopped: by then its deadline is learnt."""
STOPPED_SECONDS = 25.0
"""Longer than it takes until the last one has been fenced and left."""
JOIN_SECONDS = 150.0


class Counting:
    """A connected cluster whose updates count themselves; the timing is the one that is shipped."""

    def __init__(self, inventory: Inventory) -> None:
        """Connect, trace, and wait for all workers. Raises RuntimeError if some do not join."""
        servers, workers = inventory.of_role("ps"), inventory.of_role("worker")
        peers = Peers(
            inventory.task("coordinator", 0).address,
            tuple(server.address for server in servers),
            tuple(worker.address for worker in workers),
        )
        self._runtime = Runtime(peers)
        layout = Layout([ParameterSpec("count", (SIZE,))])
        places = [device("ps", place) for place in range(len(servers))]
        self.shards = ParameterShards(layout, VectorState(np.zeros(SIZE, np.float32)), MomentumSGD(), places)

        def update(identifier: Any) -> Any:
            trained, statistics, versions = self.shards.pull()
            pushed = self.shards.push(trained * 0.0 - 1.0, statistics, identifier, tf.constant(1.0), versions)
            return tf.stack([pushed.fresh, pushed.staleness])

        self.dispatcher = Dispatcher(self._runtime, {"update": trace(update, tf.TensorSpec([], tf.int64))})
        if (joined := self.dispatcher.wait_for_workers(len(workers), JOIN_SECONDS)) < len(workers):
            raise RuntimeError(f"{joined} of {len(workers)} workers joined within {JOIN_SECONDS:.0f} s")
        self.scheduled = 0

    def gaps(self, until: Callable[[], bool]) -> list[float]:
        """Updates until that holds; the seconds from each to the next."""
        found, before = [], time.monotonic()
        for _ in self.dispatcher.run(self._items(until)):
            now = time.monotonic()
            found.append(now - before)
            before = now
        return found

    def _items(self, until: Callable[[], bool]) -> Iterator[Item]:
        while not until():
            yield Item(self.scheduled, "update", (np.int64(self.scheduled),))
            self.scheduled += 1

    def warm(self) -> bool:
        """Whether each worker has replied often enough."""
        return all(worker.served >= WARM_REPLIES for worker in self.dispatcher.membership.workers.values())

    def close(self) -> None:
        """Leave the cluster."""
        self.dispatcher.close()
        self._runtime.close()


def run(inventory: Inventory, stopped: list[int]) -> dict[str, Any]:
    """Stop these processes, update, continue them; the row. Raises RuntimeError for a lost or doubled update."""
    cluster = Counting(inventory)
    before = cluster.gaps(cluster.warm)
    until = time.monotonic() + STOPPED_SECONDS
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        gaps = cluster.gaps(lambda: time.monotonic() > until)
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    left = len(cluster.dispatcher.membership.workers) - len(cluster.dispatcher.live)
    vector, totals = cluster.shards.read(), cluster.shards.totals()
    cluster.close()
    if not (vector.min() == vector.max() == totals.applied == cluster.scheduled):
        raise RuntimeError(f"scheduled {cluster.scheduled}, applied {totals.applied}, {vector.min()}, {vector.max()}")
    return {
        "longest_gap_seconds": max(gaps),
        "longest_gap_before_seconds": max(before[len(before) // 2 :]),
        "updates_while_stopped": len(gaps),
        "left": left,
        "scheduled": cluster.scheduled,
        "duplicates_dropped": totals.duplicates_dropped,
    }


def main() -> None:
    """Run and print the row."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coordinators.stopped")
    parser.add_argument("--inventory", required=True)
    parser.add_argument("--stop", type=int, nargs="+", required=True, help="process ids")
    given = parser.parse_args()
    print(json.dumps(run(load(given.inventory), given.stop)), flush=True)
    os._exit(0)  # TensorFlow's server threads cannot be joined


if __name__ == "__main__":
    main()
