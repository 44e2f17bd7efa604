"""Words in messages: command lines to copy, return codes by name."""

from pathlib import Path
from signal import Signals

from cluster.errors import ExitCode
from deploy.common.command_line import quoted


def command(words: str, inventory: Path) -> str:
    """`fab deploy stop --inventory pi.yaml`: the words after `fab`, on the inventory as this call found it."""
    return f"fab {words} --inventory {quoted(inventory)}"


def named(return_code: int) -> str:
    """`exit code 20 (PORT_TAKEN)`, `signal 9 (SIGKILL)`; a code without a name is its number."""
    if return_code < 0:
        number = -return_code
        name = Signals(number).name if number in {int(known) for known in Signals} else "unknown"
        return f"signal {number} ({name})"
    try:
        return f"exit code {return_code} ({ExitCode(return_code).name})"
    except ValueError:
        return f"exit code {return_code}"
