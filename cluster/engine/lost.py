"""The one failure that the engine cannot work around: a process that held parameters is gone.

A worker's call fails with the same words whether a parameter server is lost or only that worker's way to it. So the
word of a worker never ends a job. A server counts as lost only if it is silent to the coordinator, or if an operation
of the coordinator's own fails there.

One exception: a server that restarts while no worker is there joins the cluster again with the next worker, and answers
the coordinator. Its parameters are gone. Only the call that needs one shows it, in words of the server's own.
"""

import logging
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

from cluster.engine.runtime import Runtime, split
from cluster.errors import ClusterError, ExitCode
from cluster.lazy import tf
from cluster.server.probe import answers

log = logging.getLogger(__name__)

PROBE_SECONDS = (2.0, 5.0, 10.0)
"""How long each probe of a silent parameter server lasts before it counts as lost. A dead one refuses at once."""

TRIES = 3
RETRY_SECONDS = 0.5
"""Our own connection may have broken, and mends itself. A restarted server reports it at once."""


FORGOTTEN = re.compile(r"Unable to find the relevant tensor remote_handle.*/job:ps/replica:0/task:(\d+)", re.DOTALL)
"""What a server that restarted meanwhile says of a parameter (measured with TensorFlow 2.21)."""


class ParameterServerLost(ClusterError):
    """A parameter server died, or in `allreduce` a worker, and with it parameters and our TensorFlow context.

    Another process resumes from the last checkpoint; `fab` starts one.
    """

    exit_code = ExitCode.SERVER_LOST


def first_line(problem: tf.errors.OpError) -> str:
    """The line that says what happened and where, of the many that TensorFlow writes."""
    message = str(problem.message)
    origin = re.search(r"from remote target (.*?):*(?: while|$)", message, re.MULTILINE)
    where = f" (from {origin[1]})" if origin else ""
    return f"{type(problem).__name__}: {(message.splitlines() or [''])[0]}{where}"


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


def raise_if_server_lost(runtime: Runtime, reason: str) -> None:
    """Raise ParameterServerLost, which quotes `reason`, if a parameter server fails the coordinator itself.

    So it does if `reason` is that a server has no such parameter any more.
    """
    if forgotten := FORGOTTEN.search(reason):
        raise ParameterServerLost(
            f"parameter server ps:{forgotten[1]} has restarted without its parameters ({reason}): "
            "`fab job train --resume` continues from the last checkpoint"
        )
    for task, address in enumerate(runtime.peers.parameter_servers):
        if problem := _problem(runtime, task, address):
            raise ParameterServerLost(
                f"parameter server ps:{task} at {address} is gone ({problem}; {reason}). Its parameters went "
                "with it: see its log (`fab deploy logs`); `fab job train --resume` continues from the last "
                "checkpoint"
            )


def _problem(runtime: Runtime, task: int, address: str) -> str | None:
    """What is wrong with the server; None if nothing is."""
    if not any(answers(*split(address), seconds) for seconds in PROBE_SECONDS):
        return "it does not answer"
    for attempt in range(TRIES):
        try:
            runtime.ask_server(task)
        except tf.errors.UnavailableError as problem:
            said = first_line(problem)
            log.warning("ps:%d at %s answers a probe and fails us: %s", task, address, said)
            time.sleep(RETRY_SECONDS * (attempt < TRIES - 1))
        except tf.errors.OpError as problem:
            return f"it does not know us any more: {first_line(problem)}"
        else:
            return None
    return said
