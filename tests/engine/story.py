"""What every story of `tests.engine.scenario` is told with: a connected cluster that counts its updates."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import cluster.engine.environment  # noqa: F401  (before tensorflow)
from cluster.engine.dispatcher import Dispatcher
from cluster.engine.membership import Timing
from cluster.engine.messages import Item, Outcome
from cluster.engine.runtime import Peers, Runtime, device, trace
from cluster.parameters import Layout, ParameterSpec
from ps_node.optimizers.sgd import MomentumSGD
from ps_node.shard import VectorState
from ps_node.shards import ParameterShards
from tests.engine.processes import Roles

import tensorflow as tf  # isort: skip

SIZE = 5000
TIMING = Timing(first_reply_seconds=20.0, floor_seconds=1.0, slow_factor=3.0, abandon_seconds=10.0)


class Story:
    """A connected cluster with the counting update, and what happened to it."""

    def __init__(self, roles: Roles, absent: tuple[str, ...] = (), spin: int = 0, during_trace: Any = None) -> None:
        self.roles = roles
        self.scheduled = self.done = 0
        roles.start(*(name for name in roles.server_names + roles.worker_names if name not in absent))
        peers = Peers(
            roles.address("coordinator"),
            tuple(map(roles.address, roles.server_names)),
            tuple(map(roles.address, roles.worker_names)),
        )
        self.runtime = Runtime(peers)
        layout = Layout([ParameterSpec("count", (SIZE,))])
        places = [device("ps", k) for k in range(roles.servers)]
        self.shards = ParameterShards(layout, VectorState(np.zeros(SIZE, np.float32)), MomentumSGD(), places)

        def update(identifier: Any) -> Any:
            trained, statistics, versions = self.shards.pull()
            busy = tf.while_loop(
                lambda step, _: step < spin, lambda step, x: (step + 1, tf.sin(x) + 1.0), [0, tf.reduce_sum(trained)]
            )[1]
            gradient = tf.fill([SIZE], -1.0 + 0.0 * busy)
            outcome = self.shards.push(gradient, statistics, identifier, tf.constant(1.0), versions)
            return tf.stack([outcome.fresh, outcome.staleness])

        if during_trace is not None:
            during_trace()
        functions = {"update": trace(update, tf.TensorSpec([], tf.int64))}
        self.dispatcher = Dispatcher(self.runtime, functions, TIMING, patience_seconds=60.0)

    def updates(self, count: int, until: Callable[[], bool]) -> Iterator[Item]:
        """At least `count` new items, and on until `until` holds."""
        drawn = 0
        while drawn < count or not until():
            item = Item(self.scheduled, "update", (np.int64(self.scheduled),))
            self.scheduled, drawn = self.scheduled + 1, drawn + 1
            yield item

    def run(
        self,
        count: int,
        hook: Callable[[Outcome], None] = lambda outcome: None,
        until: Callable[[], bool] = lambda: True,
    ) -> dict[str, Any]:
        """Schedule so many updates; `hook` is called with each outcome as it comes."""
        begin, slowest, previous = time.monotonic(), 0.0, time.monotonic()
        by_task: dict[int, int] = {}
        for outcome in self.dispatcher.run(self.updates(count, until)):
            by_task[outcome.task] = by_task.get(outcome.task, 0) + 1
            slowest, previous = max(slowest, time.monotonic() - previous), time.monotonic()
            self.done += 1
            hook(outcome)
        return {"by_task": by_task, "seconds": time.monotonic() - begin, "longest_gap_seconds": slowest}

    def end(self, **facts: Any) -> dict[str, Any]:
        vector, totals = self.shards.read(), self.shards.totals()
        late = self.dispatcher.membership.late_replies
        phases = {task: worker.phase.value for task, worker in self.dispatcher.membership.workers.items()}
        self.dispatcher.close()
        return {
            "minimum": float(vector.min()),
            "maximum": float(vector.max()),
            "scheduled": self.scheduled,
            "applied": totals.applied,
            "duplicates_dropped": totals.duplicates_dropped,
            "late_replies": late,
            "departures": {task: worker.departures for task, worker in self.dispatcher.membership.workers.items()},
            "phases": phases,
            **facts,
        }
