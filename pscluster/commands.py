"""One command of `fab` in a child: lines as they come, answer and errors as Python's."""

import io
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from core.ground.children import Child
from core.ground.errors import ClusterError, ExitCode, UsageError
from core.ground.files import parsed_json
from core.logs import say
from deploy.common.project import environment_for_any_folder, module_command

if TYPE_CHECKING:
    from pscluster.run import Run


LONGEST_LINE = 4000
"""Characters of a line that an error repeats."""


class Cancelled(ClusterError):
    """A person ended the job. `run` is what it left so far, None where it left nothing."""

    exit_code = ExitCode.CANCELLED

    def __init__(self, text: str, answer: Any = None) -> None:
        super().__init__(text)
        self.answer = answer
        self.run: Run | None = None


def show(line: str) -> None:
    """Print a line of progress on standard error: below the cell in a notebook."""
    say(line, error=True)


def run(
    arguments: Sequence[str],
    report: Callable[[str], None] = show,
    accept: Sequence[int] = (0,),
    variables: Mapping[str, str] = MappingProxyType({}),
) -> Any:
    """Return the JSON object that the command prints, or None; `report` gets its other lines.

    `variables` go into the command's environment.

    Raises UsageError, Cancelled or ClusterError with the command's own last line, by its exit code.
    Ctrl-C reaches the command once: a job then ends with its result so far.
    """
    # A terminal's Ctrl-C would reach a child of our own group too, and a second one kills a job.
    with (
        tempfile.TemporaryFile() as answer,
        Child(
            module_command("pscluster", *arguments),
            environment={**environment_for_any_folder(), **variables},
            stdout=answer,
            stderr=subprocess.PIPE,
        ) as child,
    ):
        assert child.stderr is not None
        # Universal newlines: a bar's carriage return ends a line too.
        with io.TextIOWrapper(child.stderr, errors="replace") as lines:
            last, interrupted = _watched(child, lines, report)
        answer.seek(0)
        printed = _answer(answer.read().decode(errors="replace").strip())
    code = child.returncode
    if interrupted and code == ExitCode.DONE:
        raise Cancelled("interrupted: the command was done already", printed)
    if interrupted and code == ExitCode.CANCELLED:
        raise Cancelled(last, printed)
    if code not in accept:
        raise _error(
            code, last or f"pscluster {' '.join(arguments[:2])}: exit code {code}", printed
        )
    return printed


def _answer(printed: str) -> Any:
    try:
        if printed:
            return parsed_json(printed.splitlines()[-1])
        return None
    except ValueError:
        return printed


def _watched(child: Child, lines: Iterable[str], report: Callable[[str], None]) -> tuple[str, bool]:
    """Report lines until the child ends; return the last, and whether Ctrl-C came meanwhile."""
    last = ""
    interrupted = False
    while True:
        try:
            for line in lines:
                if text := line.rstrip():
                    last = text[:LONGEST_LINE]
                    report(last)
            child.wait()
            return last, interrupted
        except KeyboardInterrupt:
            # The first ends a job with its result so far, the second kills it; what it says is
            # still worth reading.
            interrupted = True
            child.send_signal(signal.SIGINT)


def _error(code: int, text: str, printed: Any) -> ClusterError:
    sys.stderr.flush()
    if code == ExitCode.CANCELLED:
        return Cancelled(text, printed)
    if code == ExitCode.BAD_USAGE:
        return UsageError(text)
    return ClusterError(text)
