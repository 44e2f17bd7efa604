"""The edge of every command: its flags, what a person sees when it cannot be done, and the exit code a script sees."""

import inspect
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any

from invoke.exceptions import Exit

from cluster.errors import ClusterError, ExitCode
from cluster.logs.terminal import visible
from deploy.commands.flags import FLAGS, Flags, Known
from deploy.commands.typed import after_dashes
from deploy.common.interrupts import a_command_begins

CONTRACT = frozenset({ExitCode.DONE, ExitCode.FAILED, ExitCode.BAD_USAGE, ExitCode.DEGRADED, ExitCode.CANCELLED})
"""What a script may meet (docs/commands.md). The other codes are between role processes and their supervisor."""

Command = Callable[..., None]
"""Takes fab's context and the flags that it has, each by name."""


def end_as_the_job_did(code: int) -> None:
    """End the command unless the job is done (0); a job's code outside the contract is a failure like any other."""
    if code:
        raise Exit(None, code if code in CONTRACT else ExitCode.FAILED)


def flags_of(made: Command) -> tuple[Known, ...]:
    """The flags of what `takes` made."""
    return made.flags  # type: ignore[attr-defined,no-any-return]


def takes(flags: str, *, rest: bool = False) -> Callable[[Callable[[Flags], None]], Command]:
    """Makes a command of a function of `Flags`: one that takes these flags, by their names there.

    With `rest` it also takes the words behind `--`, which `after_dashes` returns; others refuse them.

    Its expected errors become one message and an exit code; a bug keeps its traceback. The first argument is fab's
    context. With `fab -H` it is a connection, and the command would run once for each host.
    """
    known = tuple(FLAGS[name] for name in flags.split())

    def made(body: Callable[[Flags], None]) -> Command:
        @wraps(body)
        def guarded(context: Any, **given: Any) -> None:
            if hasattr(context, "host"):
                raise Exit("-H/--hosts: the inventory says which machines; leave it out", ExitCode.BAD_USAGE)
            if after_dashes() and not rest:
                raise Exit("--: only `fab job run` takes words behind it, its program's arguments", ExitCode.BAD_USAGE)
            try:
                a_command_begins()
                body(Flags(**{one.name: one.value(given) for one in known}))
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

        guarded.__signature__ = signature(["context"], known)  # type: ignore[attr-defined]
        guarded.flags = known  # type: ignore[attr-defined]
        return guarded

    return made


def signature(positional: Sequence[str], known: Iterable[Known]) -> inspect.Signature:
    """Of a task: invoke finds names, defaults and types there."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    words = [*positional, *(one.typed for one in known if one.positional)]
    flags = [inspect.Parameter(one.typed, kind, default=one.default) for one in known if not one.positional]
    return inspect.Signature([*(inspect.Parameter(name, kind) for name in words), *flags])
