"""Programs that a test runs to their end."""

import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.hang import HANG_SECONDS

PROJECT = Path(__file__).parents[1]


def program(text: str, *flags: str) -> str:
    """The text as an executable file of this Python, whose path may have blanks."""
    words = shlex.join((sys.executable, *flags))
    return f"#!/bin/sh\n'''exec' {words} \"$0\" \"$@\"\n' '''\n{text}"


def ran(
    *words: str | Path,
    code: int = 0,
    folder: Path = PROJECT,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """What a program says that ends with this status, within ten minutes."""
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, timeout=HANG_SECONDS
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


def python(
    *words: str | Path,
    code: int = 0,
    folder: Path = PROJECT,
    environment: Mapping[str, str] | None = None,
) -> str:
    """What this Python says on standard output, or on standard error where it has to fail."""
    done = ran(sys.executable, *words, code=code, folder=folder, environment=environment)
    return done.stderr if code else done.stdout
