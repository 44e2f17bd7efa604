"""What a return code of `subprocess` means, in words."""

from signal import Signals

from cluster.errors import ExitCode


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
