"""Shell scripts for a node, and what comes of them.

A script is text for a POSIX shell, run as root. Its values are assigned at its top, each of them quoted; its body is a
constant: no value is ever part of the body. The body is a function that is called in the last line, so that a script
that arrives in part does nothing. It ends with one line on stdout, `changed: ...` or `unchanged: ...`, or with an exit
code of `Refusal` and one line on stderr.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from cluster.errors import ClusterError
from deploy.common.command_line import quoted

ROOT = "/opt/pscluster"
"""Where everything of ours lies on a node's own disk."""

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
    """Why a script did not do its work, as its exit code."""

    NO_SPACE = 71
    HASH_MISMATCH = 72
    NO_PYTHON = 73
    NOT_PUBLISHED = 74
    BUSY = 75
    INSTALL_FAILED = 76
    NOT_THERE = 77


class RefusedError(ClusterError):
    """A script's refusal; `refusal` is None for an exit code that no script of ours gives (a deadline, a lost link)."""

    def __init__(self, line: str, return_code: int) -> None:
        super().__init__(line)
        self.return_code = return_code
        self.refusal = Refusal(return_code) if return_code in Refusal.__members__.values() else None


@dataclass(frozen=True)
class Done:
    """What a script did, in one line."""

    changed: bool
    line: str


def script(body: str, values: Mapping[str, str | int]) -> str:
    """The script that runs `body` with these shell variables. Raises ValueError for what no shell can take."""
    for name, value in values.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"expected a name of lower-case letters, got {name!r}")
        if "\0" in str(value):
            raise ValueError(f"{name}: a shell's value cannot hold a NUL byte")
    assignments = "\n".join(f"{name}={quoted(value)}" for name, value in values.items())
    return _FRAME.format(assignments=assignments, body=body)


def outcome(return_code: int, stdout: str, stderr: str) -> Done:
    """What the script's last words mean. Raises RefusedError."""
    said = stdout.strip().splitlines()
    complained = [line for line in stderr.splitlines() if line.strip()]
    if return_code != 0:
        raise RefusedError(complained[-1].strip() if complained else f"exit code {return_code}", return_code)
    word, _, line = (said[-1] if said else "").partition(": ")
    if word not in ("changed", "unchanged"):
        raise RefusedError(f"expected `changed: ...` as the last line, got {word!r}", return_code)
    return Done(word == "changed", line)
