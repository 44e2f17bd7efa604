"""What the last line that a role logged says about its end. Pure."""

import re
from signal import Signals

_SILENT = frozenset({-Signals.SIGKILL, -Signals.SIGTERM, -Signals.SIGINT})
"""Return codes of a process that somebody ended: its last line is about something else."""

_LOGGED = re.compile(r"\d{4}-\d\d-\d\d[ T]\S+ (?P<level>[A-Z]+|[IWEF]) ")
_NOTHING_WRONG = frozenset({"DEBUG", "INFO", "I"})


def last_words(line: str, role: str, address: str, return_code: int) -> str:
    """Why the role ended, without the time and the role's own name and address; empty when `line` does not say.

    `role` is `ps:0`, `address` its `host:port`; `return_code` as `subprocess` gives it, negative for a signal.
    """
    if return_code in _SILENT:
        return ""
    logged = _LOGGED.match(line)
    if logged:
        if logged["level"] in _NOTHING_WRONG:
            return ""
        line = line[logged.end() :]
    for own in (f"{role} {address}: ", f"{role}: "):
        line = line.removeprefix(own)
    return line
