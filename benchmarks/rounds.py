"""Coordinators that train on demand, so that several can take turns: so many steps for each line they are sent."""

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Any


def serve(run: Callable[[int], list[float]]) -> None:
    """In the coordinator: for each line of standard input, a number, train so many steps and print what they took."""
    for line in sys.stdin:
        begin = time.monotonic()
        losses = run(int(line))
        json.dump({"steps": len(losses), "seconds": time.monotonic() - begin, "last_loss": losses[-1]}, sys.stdout)
        print(flush=True)


class Coordinator:
    """Such a coordinator seen from outside. Use as a context manager: it is ended afterwards."""

    def __init__(self, command: Sequence[str], deadline_seconds: float) -> None:
        """`deadline_seconds` is what `run` waits at most."""
        self._command, self._deadline_seconds = command, deadline_seconds

    def __enter__(self) -> "Coordinator":
        with ExitStack() as stack:
            # A file: whoever outlives it by a moment, such as its watchdog, would keep a pipe open.
            self._errors = stack.enter_context(tempfile.TemporaryFile("w+"))
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
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
            with suppress(BrokenPipeError):  # what it was sent last and never read
                if stream:
                    stream.close()

    def run(self, steps: int) -> dict[str, Any]:
        """Train so many steps; what it printed. Raises RuntimeError with its last words, or past the deadline."""
        line, overdue = self._asked(str(steps))
        if line:
            result: dict[str, Any] = json.loads(line)
            return result
        if overdue:
            raise RuntimeError(f"not done after {self._deadline_seconds:.0f} s")
        self._process.wait()
        self._errors.seek(0)
        raise RuntimeError(self._errors.read().strip().rpartition("\n")[2] or "ended without a word")

    def _asked(self, question: str) -> tuple[str, bool]:
        """The line that came back, and whether the deadline passed before."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        overdue = threading.Event()

        def end() -> None:
            overdue.set()
            self._process.kill()

        timer = threading.Timer(self._deadline_seconds, end)
        timer.start()
        try:
            print(question, file=self._process.stdin, flush=True)
            return self._process.stdout.readline(), overdue.is_set()
        except BrokenPipeError:
            return "", overdue.is_set()
        finally:
            timer.cancel()
