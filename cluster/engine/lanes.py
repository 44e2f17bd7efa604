"""A lane is the thread that talks to one worker: it makes the blocking calls, so that nobody else has to wait."""

import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from cluster.engine.lost import first_line
from cluster.engine.messages import Event, Failed, Item, Replied
from cluster.engine.runtime import TRANSIENT, Runtime

import tensorflow as tf  # isort: skip


class Lane:
    """One worker's calls, one after the other, each answered by Replied or Failed on `events`."""

    def __init__(
        self,
        runtime: Runtime,
        functions: Mapping[str, Callable[..., Any]],
        task: int,
        events: "queue.SimpleQueue[Event]",
    ) -> None:
        self._runtime, self._functions, self._task, self._events = runtime, functions, task, events
        self._work: queue.SimpleQueue[tuple[Item, int] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name=f"worker-{task}", daemon=True)
        self._thread.start()

    def call(self, item: Item, attempt: int) -> None:
        """Make this call next."""
        self._work.put((item, attempt))

    def close(self, wait_seconds: float = 0.0) -> None:
        """End the thread after its present call; do not wait longer than `wait_seconds` for that."""
        self._work.put(None)
        self._thread.join(wait_seconds)

    def _serve(self) -> None:
        with self._runtime.lane(self._task):
            while (work := self._work.get()) is not None:
                self._events.put(self._answer(*work))

    def _answer(self, item: Item, attempt: int) -> Event:
        begin = time.monotonic()
        try:
            with tf.device("CPU:0"):  # ours: the arguments travel inside the request
                arguments = [tf.constant(argument) for argument in item.arguments]
            value = self._functions[item.function](*arguments)
            with tf.device("CPU:0"):
                # A remote tensor's numpy() holds the interpreter lock while it waits for the worker, and with it the
                # whole coordinator if that worker is stopped just then (measured). An operation does not.
                value = tf.nest.map_structure(lambda tensor: tf.raw_ops.Identity(input=tensor).numpy(), value)
        except tf.errors.OpError as problem:
            return Failed(self._task, attempt, first_line(problem), isinstance(problem, TRANSIENT))
        except Exception as problem:
            # Ours, not the network's: it must reach the person, not end in a silent thread.
            return Failed(self._task, attempt, f"{type(problem).__name__}: {problem}", transient=False)
        return Replied(self._task, attempt, value, time.monotonic() - begin)
