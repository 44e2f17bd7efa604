"""Shell scripts for a node, and their outcomes.

A script is text for a POSIX shell, run as root. Its head assigns the values, each quoted; its body is a constant that
never contains a value. The body is a function that the last line calls, so that a script that arrives in part does
nothing. It ends with one line on stdout, `changed: ...` or `unchanged: ...`, or with an exit code of `Refusal` and one
line on stderr.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from cluster.errors import ClusterError
from deploy.common.command_line import quoted

ROOT = "/opt/pscluster"
"""The folder of all releases and environments on a node's own disk."""

KEY_DIGITS = 16
"""Hexadecimal digits of a key, the name of a release or an environment: 64 bits of a hash of its content."""

_KEY = re.compile(rf"[0-9a-f]{{{KEY_DIGITS}}}")
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_FRAME = """\
set -eu
LC_ALL=C PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export LC_ALL PATH
umask 022
{assignments}
refuse() {{ code=$1; shift; echo "$*" | tr '\\n' ' ' >&2; echo >&2; exit "$code"; }}
main() {{
{body}}}
main
"""


class Refusal(IntEnum):
    """Why a script refused its work, as its exit code."""

    NO_SPACE = 71
    HASH_MISMATCH = 72
    NO_PYTHON = 73
    NOT_PUBLISHED = 74
    BUSY = 75
    INSTALL_FAILED = 76
    NOT_THERE = 77


class RefusedError(ClusterError):
    """A script's refusal; `refusal` is None for any other exit code (a deadline, a lost link)."""

    def __init__(self, line: str, return_code: int) -> None:
        super().__init__(line)
        self.return_code = return_code
        self.refusal = Refusal(return_code) if return_code in Refusal.__members__.values() else None


@dataclass(frozen=True)
class Done:
    """The line with which a script reports success."""

    changed: bool
    line: str


def script(body: str, values: Mapping[str, str | int]) -> str:
    """The script that runs `body` with these shell variables. Raises ValueError for a bad name or a NUL byte."""
    for name, value in values.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"expected a name of lower-case letters, got {name!r}")
        if "\0" in str(value):
            raise ValueError(f"{name}: a shell's value cannot hold a NUL byte")
    assignments = "\n".join(f"{name}={quoted(value)}" for name, value in values.items())
    return _FRAME.format(assignments=assignments, body=body)


def checked(key: str) -> str:
    """`key`, if it is one: root removes paths that contain it. Raises ValueError."""
    if not _KEY.fullmatch(key):
        raise ValueError(f"expected a key of {KEY_DIGITS} hexadecimal digits, got {key!r}")
    return key


def outcome(return_code: int, stdout: str, stderr: str) -> Done:
    """The result in the script's last line. Raises RefusedError."""
    said = stdout.strip().splitlines()
    complained = [line for line in stderr.splitlines() if line.strip()]
    if return_code != 0:
        raise RefusedError(complained[-1].strip() if complained else f"exit code {return_code}", return_code)
    word, _, line = (said[-1] if said else "").partition(": ")
    if word not in ("changed", "unchanged"):
        raise RefusedError(f"expected `changed: ...` as the last line, got {word!r}", return_code)
    return Done(word == "changed", line)
