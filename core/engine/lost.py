"""The one failure that the engine cannot work around: a process that held parameters is gone.

A worker's call fails with the same words whether a parameter server is lost or only that worker's
way to it. So the word of a worker never ends a job. A server counts as lost if the watchdog process
has cut it off because it answered no probe for too long, if it refuses connections, or if an
operation of the coordinator's own fails there.

One exception: a server that restarts while no worker is there joins the cluster again with the next
worker, and answers the coordinator. Its parameters are gone. Only the call that needs one shows it,
in words of the server's own.
"""

import logging
import re
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from core.engine.guardian import losses, operation
from core.engine.runtime import Runtime, split
from core.ground.errors import ClusterError, ExitCode
from core.ground.lazy import tf
from core.server.probe import refuses

log = logging.getLogger(__name__)

REFUSED_SECONDS = 1.0
"""Wait for a refusal: a machine that is there refuses at once."""

TRIES = 3
RETRY_SECONDS = 0.5
"""Our own connection may have broken, and mends itself. A restarted server reports it at once."""


FORGOTTEN = re.compile(
    r"Unable to find the relevant tensor remote_handle.*/job:ps/replica:0/task:(\d+)", re.DOTALL
)
"""Error of a server that restarted meanwhile, of a parameter (measured with TensorFlow 2.21)."""


class ParameterServerLost(ClusterError):
    """A server of parameters died, and with it parameters and our TensorFlow context.

    In `allreduce` it is a worker.

    Another process resumes from the last checkpoint; `fab` starts one.
    """

    exit_code = ExitCode.SERVER_LOST


def first_line(problem: "tf.errors.OpError") -> str:
    """The line that says what happened and where, of the many that TensorFlow writes."""
    message = str(problem.message)
    origin = re.search(r"from remote target (.*?):*(?: while|$)", message, re.MULTILINE)
    if origin:
        where = f" (from {origin[1]})"
    else:
        where = ""
    return f"{type(problem).__name__}: {(message.splitlines() or [''])[0]}{where}"


def holder_lost(holder: str, reason: str) -> ParameterServerLost:
    """The error for a lost worker that held a part of the parameters."""
    return ParameterServerLost(
        f"{holder}, or one that it exchanges parameters with, is gone ({reason}), and its part of"
        " them too: `fab job train --resume` continues from the last checkpoint with the workers"
        " there are"
    )


def server_lost(server: str, reason: str) -> ParameterServerLost:
    """The error for a parameter server that is gone."""
    return ParameterServerLost(
        f"parameter server {server} is gone ({reason}). Its parameters went with it: see its log"
        " (`fab deploy logs`); `fab job train --resume` continues from the last checkpoint"
    )


def raise_if_cut_off() -> None:
    """Raise ParameterServerLost if the watchdog has cut off a process that held parameters."""
    for loss in losses():
        if not loss.name:
            raise ParameterServerLost(
                "an operation of this job on its parameter servers did not end within"
                f" {loss.seconds} s, although they answer: see their logs (`fab deploy logs`); `fab"
                " job train --resume` continues from the last checkpoint"
            )
        silent = f"it has answered no probe for {loss.seconds} s"
        if loss.name.startswith("worker:"):
            raise holder_lost(loss.name, silent)
        raise server_lost(f"{loss.name} at {loss.address}", silent)


@contextmanager
def reaching_servers() -> Iterator[None]:
    """Turn TensorFlow's errors from calls to the parameter servers into ParameterServerLost.

    The watchdog process ends a call inside that waits for a silent server, or lasts too long.
    """
    try:
        with operation():
            yield
    except tf.errors.OpError as problem:
        raise_if_cut_off()
        raise ParameterServerLost(
            f"a parameter server failed an operation ({first_line(problem)}): it was killed,"
            " restarted or has no memory left. See its log (`fab deploy logs`); `fab job train"
            " --resume` continues from the last checkpoint"
        ) from problem


@contextmanager
def reaching_holders() -> Iterator[None]:
    """Do as `reaching_servers` for calls to workers that hold the parameters."""
    try:
        with operation():
            yield
    except tf.errors.OpError as problem:
        raise_if_cut_off()
        raise holder_lost("a worker", first_line(problem)) from problem


def raise_if_server_lost(runtime: Runtime, reasons: Sequence[str]) -> None:
    """Raise ParameterServerLost, with a reason, if a server fails the coordinator itself.

    So it does if a reason is that a server has no such parameter any more. All servers are asked at
    the same time.
    """
    for reason in reasons:
        if forgotten := FORGOTTEN.search(reason):
            raise ParameterServerLost(
                f"parameter server ps:{forgotten[1]} has restarted without its parameters"
                f" ({reason}): `fab job train --resume` continues from the last checkpoint"
            )
    addresses = runtime.peers.parameter_servers
    if not addresses:
        return
    with operation(), ThreadPoolExecutor(len(addresses), thread_name_prefix="servers") as pool:
        problems = list(pool.map(lambda task: _problem(runtime, task), range(len(addresses))))
    raise_if_cut_off()
    for task, problem in enumerate(problems):
        if problem:
            raise server_lost(f"ps:{task} at {addresses[task]}", f"{problem}; {reasons[0]}")


def _problem(runtime: Runtime, task: int) -> str | None:
    """Return what is wrong with the server; None if nothing is."""
    address = runtime.peers.parameter_servers[task]
    if refuses(*split(address), REFUSED_SECONDS):
        return "it refuses connections"
    for attempt in range(TRIES):
        try:
            runtime.ask_server(task)
        except tf.errors.UnavailableError as problem:
            reason = first_line(problem)
            log.warning("ps:%d at %s fails us: %s", task, address, reason)
            time.sleep(RETRY_SECONDS * (attempt < TRIES - 1))
        except tf.errors.OpError as problem:
            return f"it does not know us any more: {first_line(problem)}"
        else:
            return None
    return reason
