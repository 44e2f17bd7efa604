"""A lane is the thread that talks to one worker: it makes the blocking calls, so that nobody else has to wait."""

import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

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
        while (work := self._work.get()) is not None:
            item, attempt = work
            begin = time.monotonic()
            try:
                with self._runtime.on_worker(self._task):
                    value = self._functions[item.function](*item.arguments)
                    value = tf.nest.map_structure(lambda tensor: tensor.numpy(), value)
            except tf.errors.OpError as problem:
                transient = isinstance(problem, TRANSIENT)
                self._events.put(Failed(self._task, attempt, _first_line(problem), transient))
            except Exception as problem:
                # Ours, not the network's: it must reach the person, not end in a silent thread.
                reason = f"{type(problem).__name__}: {problem}"
                self._events.put(Failed(self._task, attempt, reason, transient=False))
            else:
                self._events.put(Replied(self._task, attempt, value, time.monotonic() - begin))


def _first_line(problem: tf.errors.OpError) -> str:
    return f"{type(problem).__name__}: {str(problem.message).splitlines()[0]}{_origin(problem)}"


def _origin(problem: tf.errors.OpError) -> str:
    for line in str(problem.message).splitlines():
        if "from remote target" in line:
            return f" (from {line.split('from remote target ')[1].split(' while')[0].rstrip(':')})"
    return ""
