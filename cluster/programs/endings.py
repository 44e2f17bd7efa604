"""How the processes of a program ended, for a result and in words."""

import logging
from signal import Signals
from typing import Any

from cluster.programs.group import GroupMember

log = logging.getLogger(__name__)


def describe_part(part: GroupMember) -> dict[str, Any]:
    """Return the entry of a task in the result."""
    return {
        "node": part.member.node,
        "address": part.member.address,
        "exit_code": exit_code(part.return_code),
        "signal": signal_name(part.return_code),
        "ended_by_us": part.ended_by_us,
        "elapsed_seconds": part.seconds,
        "cpu_seconds": part.used.cpu_seconds,
        "peak_memory_bytes": part.used.peak_bytes,
    }


def exit_code(code: int | None) -> int | None:
    """Return the code as a shell has it: 128 and the number for a signal."""
    if code is None or code >= 0:
        return code
    return 128 - code


def signal_name(code: int | None) -> str | None:
    """Return the name of the signal that ended a process, None where none did."""
    if code is None or code >= 0:
        return None
    return _name(-code)


def _name(number: int) -> str:
    if number in {int(signal_number) for signal_number in Signals}:
        return Signals(number).name
    return f"signal {number}"


def ending_in_words(code: int) -> str:
    """Return `exit code 3` or `signal 9 (SIGKILL)`."""
    if code >= 0:
        return f"exit code {code}"
    return f"signal {-code} ({_name(-code)})"
