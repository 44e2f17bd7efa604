"""Processes that answer requests: JSON lines on standard input, one line of output for each.

Several of them can take turns. This module needs nothing beyond the standard library, so that it
also runs in an environment with none of our packages.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


class ChildFailedError(RuntimeError):
    """The process ended, or missed its deadline, instead of answering."""


def serve(answer: Callable[[Any], dict[str, Any]]) -> None:
    """Print the answer to each line of standard input until that ends.

    Prints of libraries go to standard error.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        answers.write(json.dumps(answer(json.loads(line))) + "\n")
        answers.flush()


class Asked:
    """Such a process, seen from outside. A context manager: leaving it kills the process."""

    def __init__(
        self, name: str, command: Sequence[str], deadline_seconds: float | None = None
    ) -> None:
        """`name` is for errors; `deadline_seconds` is the longest wait for one answer."""
        self.name = name
        self._command = command
        self._deadline_seconds = deadline_seconds

    def __enter__(self) -> "Asked":
        with ExitStack() as stack:
            # A file: a child that outlives the process, such as its watchdog, would keep a pipe
            # open.
            self._errors = stack.enter_context(tempfile.TemporaryFile("w+"))
            self._process = subprocess.Popen(
                self._command,
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
            )
            stack.callback(self._end)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            with suppress(BrokenPipeError):  # an unread request
                if stream:
                    stream.close()

    def ask(self, request: Any) -> dict[str, Any]:
        """The answer to a request.

        Raises ChildFailedError with the process's last words, or past the deadline.
        """
        line, is_overdue = self._exchange(json.dumps(request))
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        if is_overdue:
            raise ChildFailedError(f"{self.name} was not done after {self._deadline_seconds:.0f} s")
        status = self._process.wait()
        self._errors.seek(0)
        last_words = self._errors.read().strip().rpartition("\n")[2] or "without a word"
        raise ChildFailedError(f"{self.name} ended with status {status}: {last_words}")

    def _exchange(self, request: str) -> tuple[str, bool]:
        """The line that came back, and whether the deadline passed before it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        overdue = threading.Event()

        def end() -> None:
            overdue.set()
            self._process.kill()

        timer = threading.Timer(self._deadline_seconds or threading.TIMEOUT_MAX, end)
        timer.start()
        try:
            self._process.stdin.write(request + "\n")
            self._process.stdin.flush()
            return self._process.stdout.readline(), overdue.is_set()
        except BrokenPipeError:
            return "", overdue.is_set()
        finally:
            timer.cancel()
            timer.join()
