"""The benchmark's side of a contestant: a process asked a line that answers a line (`benchmarks.kernel_serve`)."""

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, cast

ROOT = Path(__file__).resolve().parent.parent
TORCH = "torch==2.13.0"
GRACE_SECONDS = 10.0


class Missing(Exception):
    """A contestant cannot take part; the message names the remedy."""


class Contestant:
    """One process; leaving the context ends it. `settings` are added to every cell it is told to build."""

    def __init__(self, name: str, command: Sequence[str], settings: dict[str, Any] | None = None) -> None:
        self.name, self.settings = name, settings or {}
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._requests, self._answers = cast(IO[str], self._process.stdin), cast(IO[str], self._process.stdout)

    def __enter__(self) -> "Contestant":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._requests.close()
        try:
            self._process.wait(0.0 if kind else GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._answers.close()

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Its answer. Raises Missing when it ended instead of answering."""
        try:
            print(json.dumps(request), file=self._requests, flush=True)
            line = self._answers.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise Missing(f"{self.name} ended with status {self._process.wait()} instead of answering {request}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def torch_interpreter(given: str | None) -> str:
    """The interpreter PyTorch runs under: `given`, else this one. Raises Missing if it cannot import torch."""
    python = given or sys.executable
    found = shutil.which(python)
    if found is None:
        raise Missing(f"--torch-python {python}: there is no such program; {remedy()}")
    tried = subprocess.run([found, "-c", "import numpy, torch"], capture_output=True, text=True)
    if tried.returncode:
        reason = (tried.stderr.strip().splitlines() or ["it failed without a word"])[-1]
        raise Missing(f"{python} cannot run PyTorch ({reason}); {remedy()}")
    return found


def remedy() -> str:
    """How to get a PyTorch to compare with: it is not in the project's lock."""
    return (
        "make it an environment of its own (python -m venv .cache/torch && .cache/torch/bin/pip install numpy "
        f"{TORCH}) and give --torch-python .cache/torch/bin/python"
    )
