"""Runs the system's commands (ip, tc, mount, chroot ...), and reports a failure in one line."""

import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

APART = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private")
"""Before a command: mounts and processes of its own, which end with it."""
HANG_SECONDS = 600.0
"""Only a bootstrap over a slow line takes this long."""


class LabError(Exception):
    """The lab cannot do what the caller asked; the message is one line with the remedy."""


def clean_environment() -> dict[str, str]:
    """The environment of a node's processes: nothing of the lab's caller, and no test session."""
    return {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": "C.UTF-8",
    }


def run(
    *words: str | Path,
    stdin: str | None = None,
    check: bool = True,
    environment: Mapping[str, str] | None = None,
    timeout_seconds: float = HANG_SECONDS,
) -> subprocess.CompletedProcess[str]:
    """The finished command with its output.

    Raises:
        LabError: It ended with a code other than 0, and `check` is true.
    """
    command = [str(word) for word in words]
    done = subprocess.run(
        command,
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        env=dict(environment) if environment is not None else {**os.environ, "LC_ALL": "C.UTF-8"},
        timeout=timeout_seconds,
    )
    if check and done.returncode != 0:
        raise LabError(complaint(command, done.returncode, done.stderr or done.stdout))
    return done


def complaint(command: Sequence[str], return_code: int, said: str) -> str:
    """One line: the command, its code, its last output."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return (
        f"`{shlex.join(command)}` ended with {return_code}:"
        f" {' / '.join(lines[-3:]) or 'it said nothing'}"
    )
