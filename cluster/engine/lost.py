"""The one failure that the engine cannot work around: a process that held parameters is gone.

A worker's call fails with the same words whether a parameter server is lost or only that worker's way to it. So the
word of a worker never ends a job. A server counts as lost only if it is silent to the coordinator, or if an operation
of the coordinator's own fails there.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import cluster.engine.environment  # noqa: F401  (before tensorflow)
from cluster.engine.runtime import Runtime
from cluster.errors import ClusterError, ExitCode
from cluster.server.probe import answers

import tensorflow as tf  # isort: skip

log = logging.getLogger(__name__)

PROBE_SECONDS = (2.0, 5.0, 10.0)
"""How long each probe of a silent parameter server lasts before it counts as lost. A dead one refuses at once."""

TRIES = 3
RETRY_SECONDS = 0.5
"""Our own connection may have broken, and mends itself. A restarted server reports it at once."""


class ParameterServerLost(ClusterError):
    """A parameter server died, or in `allreduce` a worker, and with it parameters and our TensorFlow context.

    Another process resumes from the last checkpoint; `fab` starts one.
    """

    exit_code = ExitCode.SERVER_LOST


def first_line(problem: tf.errors.OpError) -> str:
    """The line that says what happened and where, of the many that TensorFlow writes."""
    return f"{type(problem).__name__}: {(str(problem.message).splitlines() or [''])[0]}{_origin(problem)}"


def _origin(problem: tf.errors.OpError) -> str:
    for line in str(problem.message).splitlines():
        if "from remote target" in line:
            return f" (from {line.split('from remote target ')[1].split(' while')[0].rstrip(':')})"
    return ""


def holder_lost(who: str, reason: str) -> ParameterServerLost:
    """The error for a lost worker that held a part of the parameters."""
    return ParameterServerLost(
        f"{who}, or one that it exchanges parameters with, is gone ({reason}), and its part of them too: "
        "`fab job train --resume` continues from the last checkpoint with the workers there are"
    )


@contextmanager
def reaching_servers() -> Iterator[None]:
    """Turn TensorFlow's errors from calls to the parameter servers into ParameterServerLost."""
    try:
        yield
    except tf.errors.OpError as problem:
        raise ParameterServerLost(
            f"a parameter server failed an operation ({first_line(problem)}): it was killed, restarted or has no "
            "memory left. See its log (`fab deploy logs`); `fab job train --resume` continues from the last checkpoint"
        ) from problem


@contextmanager
def reaching_holders() -> Iterator[None]:
    """The same for calls to workers that hold the parameters."""
    try:
        yield
    except tf.errors.OpError as problem:
        raise holder_lost("a worker", first_line(problem)) from problem


class Servers:
    """The parameter servers of one cluster, as the coordinator reaches them."""

    def __init__(self, runtime: Runtime, addresses: Sequence[tuple[str, int]]) -> None:
        """`addresses`: (host, port) by task."""
        self._runtime, self._addresses = runtime, tuple(addresses)

    def raise_if_lost(self, reason: str) -> None:
        """Raise ParameterServerLost, which quotes `reason`, if a server fails the coordinator itself."""
        for task, (host, port) in enumerate(self._addresses):
            problem = self._problem(task, host, port)
            if problem:
                raise ParameterServerLost(
                    f"parameter server ps:{task} at {host}:{port} is gone ({problem}; {reason}). Its parameters went "
                    "with it: see its log (`fab deploy logs`); `fab job train --resume` continues from the last "
                    "checkpoint"
                )

    def _problem(self, task: int, host: str, port: int) -> str | None:
        """What is wrong with the server; None if nothing is."""
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
