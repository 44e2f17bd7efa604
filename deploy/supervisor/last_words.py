"""What the last line that a role logged says about its end. Pure."""

import re
from signal import Signals

from cluster.logs import read_line

_SILENT = frozenset({-Signals.SIGKILL, -Signals.SIGTERM, -Signals.SIGINT})
"""Return codes of a process that somebody ended: its last line is about something else."""

_OF_TENSORFLOW = re.compile(r"(?P<level>[IWEF]) ")
_NOTHING_WRONG = frozenset({"debug", "info", "I"})


def last_words(line: str, role: str, address: str, return_code: int) -> str:
    """Why the role ended, without the time and the role's own name and address; empty when `line` does not say.

    `role` is `ps:0`, `address` its `host:port`; `return_code` as `subprocess` gives it, negative for a signal.
    """
    if return_code in _SILENT:
        return ""
    logged = read_line(line)
    if logged:
        line, foreign = logged.message, _OF_TENSORFLOW.match(logged.message)
        if (foreign["level"] if foreign and not logged.level else logged.level) in _NOTHING_WRONG:
            return ""
        line = line[foreign.end() :] if foreign and not logged.level else line.partition("\n")[0]
    for own in (f"{role} {address}: ", f"{role}: "):
        line = line.removeprefix(own)
    return line
