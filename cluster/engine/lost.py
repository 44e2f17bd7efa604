"""The one failure the engine cannot work around: a parameter server that is gone."""

from collections.abc import Iterator
from contextlib import contextmanager

import cluster.engine.environment  # noqa: F401  (before tensorflow)
from cluster.errors import ClusterError, ExitCode

import tensorflow as tf  # isort: skip


class ParameterServerLost(ClusterError):
    """A parameter server died: what it held is gone, and this process's TensorFlow context cannot come back.

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
