"""One command of `fab` in a child process: its lines shown as they come, its answer and its errors as Python's."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from typing import IO, TYPE_CHECKING, Any

from cluster.errors import ClusterError, ExitCode, UsageError
from cluster.logs.terminal import say
from deploy.common.project import die_with_parent, environment_for_any_folder, module_command

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
    """A line of progress, on standard error: below the cell in a notebook."""
    say(line, error=True)


def run(words: Sequence[str], report: Callable[[str], None] = show, accept: Sequence[int] = (0,)) -> Any:
    """The JSON object that the command prints, None where it prints nothing; `report` gets its other lines.

    Raises UsageError, Cancelled or ClusterError with the command's own last line, by its exit code. Ctrl-C reaches the
    command once: a job then ends with its result so far.
    """
    in_main_thread = threading.current_thread() is threading.main_thread()
    with tempfile.TemporaryFile() as answer:
        child = subprocess.Popen(
            module_command("pscluster", *words),
            stdin=subprocess.DEVNULL,
            stdout=answer,
            stderr=subprocess.PIPE,
            env=environment_for_any_folder(),
            process_group=0,  # a terminal's Ctrl-C would reach the child beside ours, and a second one kills a job
            preexec_fn=die_with_parent() if in_main_thread else None,
            text=True,
            errors="replace",
        )
        assert child.stderr is not None
        with child.stderr:
            last, interrupted = _watched(child, child.stderr, report)
        answer.seek(0)
        printed = _answer(answer.read().decode(errors="replace").strip())
    code = child.returncode
    if interrupted and code in (ExitCode.DONE, ExitCode.CANCELLED):
        raise Cancelled("interrupted: the command was done already" if code == ExitCode.DONE else last, printed)
    if code not in accept:
        raise _error(code, last or f"pscluster {' '.join(words[:2])}: exit code {code}", printed)
    return printed


def _answer(printed: str) -> Any:
    try:
        return json.loads(printed.splitlines()[-1]) if printed else None
    except ValueError:
        return printed


def _watched(child: "subprocess.Popen[str]", lines: IO[str], report: Callable[[str], None]) -> tuple[str, bool]:
    """Report all lines until the child ends; the last one, and whether Ctrl-C came meanwhile."""
    last, interrupted = "", False
    while True:
        try:
            for line in lines:
                if text := line.rstrip():
                    last = text[:LONGEST_LINE]
                    report(last)
            child.wait()
            return last, interrupted
        except KeyboardInterrupt:
            # The first ends a job with its result so far, the second kills it; what it says is still worth reading.
            interrupted = True
            os.kill(child.pid, signal.SIGINT)
        except BaseException:
            child.kill()
            child.wait()
            raise


def _error(code: int, text: str, printed: Any) -> ClusterError:
    sys.stderr.flush()
    if code == ExitCode.CANCELLED:
        return Cancelled(text, printed)
    return UsageError(text) if code == ExitCode.BAD_USAGE else ClusterError(text)
