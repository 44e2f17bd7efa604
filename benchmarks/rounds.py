"""Coordinators that train on demand, so that several can take turns: so many steps for each line they are sent."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
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
        self._deadline_seconds = deadline_seconds
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._errors: list[str] = []
        self._reader = threading.Thread(target=self._read_errors, name="errors", daemon=True)
        self._reader.start()

    def __enter__(self) -> "Coordinator":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream and not stream.closed:
                stream.close()

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._errors.append(line)

    def run(self, steps: int) -> dict[str, Any]:
        """Train so many steps; what it printed. Raises RuntimeError with its last words, or past the deadline."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        timer = threading.Timer(self._deadline_seconds, self._process.kill)
        timer.start()
        try:
            print(steps, file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        overdue = not timer.is_alive()
        timer.cancel()
        if line:
            result: dict[str, Any] = json.loads(line)
            return result
        if overdue:
            raise RuntimeError(f"not done after {self._deadline_seconds:.0f} s")
        self._process.wait()
        self._reader.join()
        raise RuntimeError("".join(self._errors).strip().rpartition("\n")[2] or "ended without a word")
