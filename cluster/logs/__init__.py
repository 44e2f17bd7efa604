"""What a log line is: the one format of every process, written and read back.

Some lines over the standard library's `logging.Formatter`. python-json-logger would give the JSON half alone, and what
it is given can break its lines (an argument that cannot be formatted, a lone surrogate); structlog is a second way to
log beside the one of every library here, and costs a role on a 1 GB Pi memory for nothing. Neither has the text half,
or reads lines back.
"""

from cluster.logs.lines import Speaker, formatter, last_line
from cluster.logs.reading import LogLine, read_line
from cluster.logs.settings import LogSettings, add_flags
from cluster.logs.setup import begin, set_level

__all__ = [
    "LogLine",
    "LogSettings",
    "Speaker",
    "add_flags",
    "begin",
    "formatter",
    "last_line",
    "read_line",
    "set_level",
]
