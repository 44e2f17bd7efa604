"""Whether a parameter server is lost, or only one worker's way to it.

A worker's call fails with the same words either way. So the word of a worker never ends a job: a server counts as lost
only if it is silent to us, or if an operation of our own fails there.
"""

import logging
import time
from collections.abc import Sequence

from cluster.engine.lost import ParameterServerLost, first_line
from cluster.engine.runtime import Runtime
from cluster.server.probe import answers

import tensorflow as tf  # isort: skip

log = logging.getLogger(__name__)

PROBE_SECONDS = (2.0, 5.0, 10.0)
"""A silent parameter server is asked this often before it counts as lost. A dead one refuses at once each time."""

TRIES = 3
RETRY_SECONDS = 0.5
"""Our own connection may be the one that broke, and mends itself. A server that was restarted says so at once."""


class Servers:
    """The parameter servers of one cluster, as the coordinator reaches them."""

    def __init__(self, runtime: Runtime, addresses: Sequence[tuple[str, int]]) -> None:
        """`addresses`: (host, port) by task."""
        self._runtime, self._addresses = runtime, tuple(addresses)

    def raise_if_lost(self, reason: str) -> None:
        """Raise ParameterServerLost, which quotes `reason`, if a server does not do what we ask of it ourselves."""
        for task, (host, port) in enumerate(self._addresses):
            problem = self._problem(task, host, port)
            if problem:
                raise ParameterServerLost(
                    f"parameter server ps:{task} at {host}:{port} is gone ({problem}; {reason}). Its parameters went "
                    "with it: see its log (`fab deploy logs`); `fab job train --resume` goes on from the last "
                    "checkpoint"
                )

    def _problem(self, task: int, host: str, port: int) -> str | None:
        """What is wrong with it, None if nothing is."""
        if not any(answers(host, port, seconds) for seconds in PROBE_SECONDS):
            return "it does not answer"
        for attempt in range(TRIES):
            try:
                self._runtime.ask_server(task)
            except tf.errors.UnavailableError as problem:
                said = first_line(problem)
                log.warning("ps:%d at %s:%d answers a probe and fails us: %s", task, host, port, said)
                time.sleep(RETRY_SECONDS * (attempt < TRIES - 1))
            except tf.errors.OpError as problem:
                return f"it does not know us any more: {first_line(problem)}"
            else:
                return None
        return said
