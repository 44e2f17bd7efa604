"""What every story of `tests.core.engine.scenario` is told with.

A connected cluster that counts its updates.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from core.engine.dispatcher import Dispatcher
from core.engine.membership import TimeLimits
from core.engine.runtime import Runtime, device, trace
from core.engine.workers import Item, Outcome
from core.ground.lazy import tf
from core.parameters import Layout, ParameterSpec
from ps_node.optimizers.sgd import MomentumSGD
from ps_node.shard import VectorState
from ps_node.shards import Header, ParameterShards
from tests.core.engine.processes import Roles

SIZE = 5000
Tell = Callable[[Roles], dict[str, Any]]

TIMING = TimeLimits(
    first_reply_seconds=20.0, floor_seconds=1.0, slow_factor=3.0, abandon_seconds=10.0
)


class Story:
    """A connected cluster with the counting update, and what happened to it."""

    def __init__(
        self,
        roles: Roles,
        absent: tuple[str, ...] = (),
        spin: int = 0,
        timing: TimeLimits = TIMING,
        stopped_while_tracing: tuple[str, ...] = (),
    ) -> None:
        """All but those that are absent or stopped have joined when it begins."""
        self.roles = roles
        self.scheduled = self.done = 0
        self.worked: dict[str, list[int]] = {}
        names = roles.server_names + roles.worker_names
        roles.start(*(name for name in names if name not in absent))
        self.runtime = Runtime(roles.peers)
        self.shards = self.placed()

        def update(identifier: Any) -> Any:
            trained, statistics, versions = self.shards.pull()
            busy = tf.while_loop(
                lambda step, _: step < spin,
                lambda step, x: (step + 1, tf.sin(x) + 1.0),
                [0, tf.reduce_sum(trained)],
            )[1]
            gradient = tf.fill([SIZE], -1.0 + 0.0 * busy)
            header = Header(identifier, tf.constant(1.0), versions)
            outcome = self.shards.push(gradient, statistics, header)
            return tf.stack([outcome.fresh, outcome.staleness])

        roles.stop(*stopped_while_tracing)
        self.update = trace(update, tf.TensorSpec([], tf.int64))
        self.dispatcher = Dispatcher(self.runtime, timing, patience_seconds=60.0)
        self.join(roles.workers - len(absent) - len(stopped_while_tracing), 90.0)

    def placed(self) -> ParameterShards:
        """The counted vector on every parameter server."""
        layout = Layout([ParameterSpec("count", (SIZE,))])
        places = [device("ps", k) for k in range(self.roles.servers)]
        return ParameterShards(
            layout, VectorState(np.zeros(SIZE, np.float32)), MomentumSGD(), places
        )

    def join(self, workers: int, seconds: float = 60.0) -> int:
        """How many workers have joined, when it is enough or the time is up."""
        return self.dispatcher.wait_for_workers(workers, seconds)

    def updates(self, count: int, until: Callable[[], bool]) -> Iterator[Item]:
        """At least `count` new items, and on until `until` holds."""
        drawn = 0
        while drawn < count or not until():
            item = Item(self.scheduled, self.update, (np.int64(self.scheduled),))
            self.scheduled = self.scheduled + 1
            drawn = drawn + 1
            yield item

    def run(
        self,
        name: str,
        count: int,
        hook: Callable[[Outcome], object] = lambda outcome: None,
        until: Callable[[], bool] = lambda: True,
        at: Mapping[int, Callable[[], object]] | None = None,
    ) -> None:
        """Schedule so many updates and keep who did them.

        `hook` is called with each outcome as it comes; those of `at` when so many are done.
        """
        tasks = set()
        for outcome in self.dispatcher.run(self.updates(count, until)):
            tasks.add(outcome.task)
            self.done += 1
            if at and self.done in at:
                at[self.done]()
            hook(outcome)
        self.worked[name] = sorted(tasks)

    @property
    def departures(self) -> dict[int, int]:
        workers = self.dispatcher.membership.workers
        return {task: worker.departures for task, worker in workers.items()}

    def close(self) -> None:
        self.dispatcher.close()
        self.runtime.close()

    def end(self, **facts: Any) -> dict[str, Any]:
        vector = self.shards.read()
        totals = self.shards.totals()
        membership = self.dispatcher.membership
        told = {
            "minimum": float(vector.min()),
            "maximum": float(vector.max()),
            "scheduled": self.scheduled,
            "applied": totals.applied,
            "duplicates_dropped": totals.duplicates_dropped,
            "late_replies": membership.late_replies,
            "departures": self.departures,
            "phases": {task: worker.phase.value for task, worker in membership.workers.items()},
            "worked": self.worked,
            **facts,
        }
        self.close()
        return told
