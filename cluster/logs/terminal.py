"""The one way to a terminal: what is shown there is made visible first, whoever wrote it."""

import json
import os
import sys
import threading
import traceback
from types import TracebackType
from typing import TextIO

from cluster.logs.foreign import visible


def is_animated(stream: TextIO) -> bool:
    """A terminal that can move its cursor: neither a file nor a pipe, nor one that says it is dumb."""
    return stream.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")


def say(line: object, *, error: bool = False, end: str = "\n") -> None:
    """Show a line, or several, on standard output, or on standard error with `error`; see `visible`."""
    stream = sys.stderr if error else sys.stdout
    text = visible(str(line))
    encoding = getattr(stream, "encoding", None) or "utf-8"
    # A terminal of Latin-1 gets an escape for what it cannot show; print would raise.
    print(text.encode(encoding, "backslashreplace").decode(encoding), file=stream, end=end, flush=True)


def show_bugs() -> None:
    """Tracebacks of this process are shown as any other text: a bug's message may quote what was read."""
    sys.excepthook = _shown
    threading.excepthook = lambda bug: _shown(bug.exc_type, bug.exc_value, bug.exc_traceback)


def _shown(kind: type[BaseException], problem: BaseException | None, trace: TracebackType | None) -> None:
    say("".join(traceback.format_exception(kind, problem, trace)), error=True, end="")


def say_json(value: object) -> None:
    """Print a value for a program as one line of JSON on standard output; every control character is escaped."""
    print(as_ascii(value), flush=True)


def as_ascii(value: object) -> str:
    """One line of JSON in printable ASCII."""
    return json.dumps(value).replace("\x7f", "\\u007f")  # DEL is the one control that JSON does not escape
