"""The benchmark's side of a contestant.

A process that answers requests (`benchmarks.kernel.serving`).
"""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from benchmarks.asking import ROOT, Asked

TORCH = "torch==2.13.0"
PLACE = ".cache/torch"


class Missing(Exception):
    """A contestant cannot take part; the message names the remedy."""


class Contestant(Asked):
    """One process; `settings` are part of every cell that it builds."""

    def __init__(
        self, name: str, command: Sequence[str], settings: dict[str, Any] | None = None
    ) -> None:
        super().__init__(name, command)
        self.settings = settings or {}

    def __enter__(self) -> "Contestant":
        super().__enter__()
        return self


def usual_torch() -> str | None:
    """Return this interpreter if it has PyTorch, or else that of the usual environment."""
    usual = ROOT / PLACE / "bin/python"
    if find_spec("torch"):
        return sys.executable
    if usual.exists():
        return str(usual)
    return None


def torch_interpreter(python: str) -> str:
    """The program PyTorch runs under. Raises Missing if it cannot import torch."""
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
        f"make it an environment of its own: python -m venv {PLACE} && {PLACE}/bin/pip install"
        f" numpy {TORCH}"
    )
