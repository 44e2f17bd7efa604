"""`mode: single`: the same functions in this process, without a cluster. The baseline of every table."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from cluster.engine.lost import first_line
from cluster.engine.messages import InOrder, Item, ItemSource, Outcome
from cluster.engine.saboteur import Saboteur
from cluster.errors import ClusterError
from cluster.inventory import Inventory
from cluster.jobs.cancel import Cancel
from cluster.jobs.coordinator_metrics import CoordinatorMetrics
from cluster.jobs.wire import Traffic
from cluster.metrics.processor import processor, usable_cores

import tensorflow as tf  # isort: skip

DEVICE = "/job:localhost/replica:0/task:0/device:CPU:0"


class Alone:
    """Runs items one after the other, as the only worker."""

    def __init__(self, functions: Mapping[str, Callable[..., Any]]) -> None:
        self._functions = functions

    @property
    def live(self) -> frozenset[int]:
        """This process, as worker 0."""
        return frozenset({0})

    def run(self, items: Iterable[Item] | ItemSource, stop: Callable[[], bool] = lambda: False) -> Iterator[Outcome]:
        """Yield the outcome of each item; none is begun once `stop()` is true. Raises ClusterError."""
        source = InOrder(items) if isinstance(items, Iterable) else items
        while not stop() and (item := source.draw(0)) is not None:
            begin = time.monotonic()
            try:
                value = self._functions[item.function](*item.arguments)
            except tf.errors.OpError as problem:
                raise ClusterError(f"{item.function} (item {item.id}) failed: {first_line(problem)}") from None
            value = tf.nest.map_structure(lambda tensor: tensor.numpy(), value)
            yield Outcome(item, 0, value, time.monotonic() - begin, 1)


class Solo:
    """What a Session is to a cluster: places for parameters, and what runs items. A context manager."""

    def __init__(self, inventory: Inventory, cancel: Cancel, metrics: CoordinatorMetrics) -> None:
        """The caller closes `metrics`. Raises ClusterError if the port of the coordinator's metrics is taken."""
        self._cancel = cancel
        # One thread an operation: how many cores there are must not change a bit of the result.
        tf.config.threading.set_intra_op_parallelism_threads(1)
        metrics.serve(inventory.task("coordinator", 0))
        self.places = (DEVICE,)
        self.workers = 1

    def __enter__(self) -> "Solo":
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is held."""

    def dispatch(
        self, functions: Mapping[str, Callable[..., Any]], first_reply_seconds: float, chaos: Saboteur | None = None
    ) -> Alone:
        """What runs the functions; without workers there is nothing for `chaos` to strike."""
        del first_reply_seconds, chaos
        self._cancel.check()
        return Alone(functions)

    def processors(self) -> set[str | None]:
        """Ours."""
        return {processor()}

    def worker_cores(self) -> list[int]:
        """Ours."""
        return [usable_cores()]

    def server_traffic(self) -> Traffic | None:
        """Nothing goes over any wire."""
        return None
