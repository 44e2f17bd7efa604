"""The one failure the engine cannot work around: whoever held parameters is gone."""

from collections.abc import Iterator
from contextlib import contextmanager

import cluster.engine.environment  # noqa: F401  (before tensorflow)
from cluster.errors import ClusterError, ExitCode

import tensorflow as tf  # isort: skip


class ParameterServerLost(ClusterError):
    """A parameter server died, or in `allreduce` a worker: what it held is gone, and our TensorFlow context with it.

    Another process can go on from the last checkpoint; `fab` starts one.
    """

    exit_code = ExitCode.SERVER_LOST


def first_line(problem: tf.errors.OpError) -> str:
    """What happened and where, of the many lines that TensorFlow writes."""
    return f"{type(problem).__name__}: {(str(problem.message).splitlines() or [''])[0]}{_origin(problem)}"


def _origin(problem: tf.errors.OpError) -> str:
    for line in str(problem.message).splitlines():
        if "from remote target" in line:
            return f" (from {line.split('from remote target ')[1].split(' while')[0].rstrip(':')})"
    return ""


def holder_lost(who: str, reason: str) -> ParameterServerLost:
    """A worker that holds a part of the parameters is gone."""
    return ParameterServerLost(
        f"{who}, or one that it exchanges parameters with, is gone ({reason}), and its part of them too: "
        "`fab job train --resume` goes on from the last checkpoint with the workers there are"
    )


@contextmanager
def reaching_servers() -> Iterator[None]:
    """Around calls of our own to the parameter servers: what TensorFlow raises becomes ParameterServerLost."""
    try:
        yield
    except tf.errors.OpError as problem:
        raise ParameterServerLost(
            f"a parameter server does not do what it is asked ({first_line(problem)}): it was killed, restarted or has "
            "no memory left. See its log (`fab deploy logs`); `fab job train --resume` goes on from the last checkpoint"
        ) from problem


@contextmanager
def reaching_holders() -> Iterator[None]:
    """The same around calls to workers that hold the parameters themselves."""
    try:
        yield
    except tf.errors.OpError as problem:
        raise holder_lost("a worker", first_line(problem)) from problem
