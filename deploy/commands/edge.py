"""The edge of every command: what a person sees when it cannot be done, and the exit code a script sees."""

import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

from invoke.exceptions import Exit

from cluster.errors import ClusterError, ExitCode
from cluster.logs.terminal import visible
from deploy.cluster.services import DegradedError
from deploy.common.interrupts import a_command_begins

__all__ = ["CONTRACT", "DegradedError", "at_the_edge", "end_as_the_job_did"]

P = ParamSpec("P")

CONTRACT = frozenset({ExitCode.DONE, ExitCode.FAILED, ExitCode.BAD_USAGE, ExitCode.DEGRADED, ExitCode.CANCELLED})
"""What a script may meet (docs/commands.md). The other codes are between role processes and their supervisor."""


def end_as_the_job_did(code: int) -> None:
    """End the command unless the job is done (0); a job's code outside the contract is a failure like any other."""
    if code:
        raise Exit(None, code if code in CONTRACT else ExitCode.FAILED)


def at_the_edge(body: Callable[P, None]) -> Callable[P, None]:
    """`body` with its expected errors turned into one message and an exit code; a bug keeps its traceback.

    The first argument is fab's context. With `fab -H` it is a connection, and the command would run once for each host.
    """

    @wraps(body)
    def guarded(*arguments: P.args, **flags: P.kwargs) -> None:
        if hasattr(arguments[0], "host"):
            raise Exit("-H/--hosts: the inventory says which machines; leave it out", ExitCode.BAD_USAGE)
        try:
            a_command_begins()
            body(*arguments, **flags)
            sys.stdout.flush()
        except ClusterError as error:
            raise Exit(visible(str(error)), int(error.exit_code)) from error
        except KeyboardInterrupt as error:
            raise Exit(None, ExitCode.CANCELLED) from error
        except BrokenPipeError as error:
            # `| head` has seen enough; Python would complain once more while it flushes stdout at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise Exit(None, ExitCode.DONE) from error
        except OSError as error:
            words = f"{error.filename or 'the system'}: {error.strerror or error}"
            raise Exit(visible(words), ExitCode.FAILED) from error

    return guarded
