"""The coordinator of `experiments.stopped`: updates while some of its workers are stopped or dead.

Prints the row.
"""

import argparse
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import core.engine.environment  # noqa: F401  (before tensorflow)
from core.engine.dispatcher import Dispatcher
from core.engine.messages import Item
from core.engine.runtime import Peers, Runtime, device, trace
from core.inventory import Inventory, load
from core.parameters import Layout, ParameterSpec
from ps_node.optimizers.sgd import MomentumSGD
from ps_node.shard import VectorState
from ps_node.shards import Header, ParameterShards

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
        servers = inventory.of_role("ps")
        workers = inventory.of_role("worker")
        peers = Peers(
            inventory.task("coordinator", 0).address,
            tuple(server.address for server in servers),
            tuple(worker.address for worker in workers),
        )
        self._runtime = Runtime(peers)
        layout = Layout([ParameterSpec("count", (SIZE,))])
        places = [device("ps", place) for place in range(len(servers))]
        self.shards = ParameterShards(
            layout, VectorState(np.zeros(SIZE, np.float32)), MomentumSGD(), places
        )

        def update(identifier: Any) -> Any:
            trained, statistics, versions = self.shards.pull()
            header = Header(identifier, tf.constant(1.0), versions)
            pushed = self.shards.push(trained * 0.0 - 1.0, statistics, header)
            return tf.stack([pushed.fresh, pushed.staleness])

        self._update = trace(update, tf.TensorSpec([], tf.int64))
        self.dispatcher = Dispatcher(self._runtime)
        if (joined := self.dispatcher.wait_for_workers(len(workers), JOIN_SECONDS)) < len(workers):
            raise RuntimeError(
                f"{joined} of {len(workers)} workers joined within {JOIN_SECONDS:.0f} s"
            )
        self.scheduled = 0

    def gaps(self, until: Callable[[], bool]) -> list[float]:
        """Updates until that holds; the seconds from each to the next."""
        found = []
        before = time.monotonic()
        for _ in self.dispatcher.run(self._items(until)):
            now = time.monotonic()
            found.append(now - before)
            before = now
        return found

    def _items(self, until: Callable[[], bool]) -> Iterator[Item]:
        while not until():
            yield Item(self.scheduled, self._update, (np.int64(self.scheduled),))
            self.scheduled += 1

    def warm(self) -> bool:
        """Whether each worker has replied often enough."""
        return all(
            worker.served >= WARM_REPLIES for worker in self.dispatcher.membership.workers.values()
        )

    def close(self) -> None:
        """Leave the cluster."""
        self.dispatcher.close()
        self._runtime.close()


def run(inventory: Inventory, struck: list[int], kill: bool) -> dict[str, Any]:
    """Stop or kill these processes, update; the row.

    Raises RuntimeError for a lost or doubled update.
    """
    cluster = Counting(inventory)
    before = cluster.gaps(cluster.warm)
    until = time.monotonic() + STOPPED_SECONDS
    for pid in struck:
        os.kill(pid, signal.SIGKILL if kill else signal.SIGSTOP)
    try:
        gaps = cluster.gaps(lambda: time.monotonic() > until)
    finally:
        for pid in struck:
            os.kill(pid, signal.SIGCONT)  # the dead ones are there until their parent ends
    left = len(cluster.dispatcher.membership.workers) - len(cluster.dispatcher.live)
    vector = cluster.shards.read()
    totals = cluster.shards.totals()
    cluster.close()
    if not (vector.min() == vector.max() == totals.applied == cluster.scheduled):
        raise RuntimeError(
            f"scheduled {cluster.scheduled}, applied {totals.applied}, {vector.min()},"
            f" {vector.max()}"
        )
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
    parser = argparse.ArgumentParser(prog="python -m experiments.coordinators.stopped")
    parser.add_argument("--inventory", required=True)
    parser.add_argument("--strike", type=int, nargs="+", required=True, help="process ids")
    parser.add_argument("--kill", action="store_true", help="instead of stopping them")
    given = parser.parse_args()
    print(json.dumps(run(load(given.inventory), given.strike, given.kill)), flush=True)
    os._exit(0)  # TensorFlow's server threads cannot be joined


if __name__ == "__main__":
    main()
