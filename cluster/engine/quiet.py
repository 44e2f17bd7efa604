"""Keeps two lines that everybody would otherwise read first from the terminal while TensorFlow is loaded."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

KNOWN = (b"WARNING: All log messages before absl::InitializeLog() is called", b"oneDNN custom operations are on.")
"""Written by the libraries' static initializers, before any log level can be set (measured with TensorFlow 2.21: also
absl's own SetMinLogLevel, called through ctypes, comes too late). The second has no switch but the one that changes
numerics."""
LEVEL, OUR_LEVEL = "TF_CPP_MIN_LOG_LEVEL", "3"


@contextmanager
def loading_quietly() -> Iterator[None]:
    """Import TensorFlow inside: what is written to file descriptor 2 meanwhile arrives, but for the `KNOWN` lines.

    A child process passes the lines on as they come, so that nothing is lost when a library aborts the process. Enter
    it while there is one thread. Someone who set $TF_CPP_MIN_LOG_LEVEL wants to see it all, and does.
    """
    if os.environ.get(LEVEL, OUR_LEVEL) != OUR_LEVEL:
        yield
        return
    opened: list[int] = []
    try:
        opened.append(os.dup(2))
        opened.extend(os.pipe())
        child = os.fork()
    except OSError:  # no standard error, or no process left for a matter of taste
        for descriptor in opened:
            os.close(descriptor)
        yield
        return
    before, source, sink = opened
    if child == 0:
        _pass_on(source, before, sink)
    os.close(source)
    os.dup2(sink, 2)
    os.close(sink)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
        os.waitpid(child, 0)


def _pass_on(source: int, sink: int, other_end: int) -> None:
    """The child: ends with the last writer, by then everything has been passed on."""
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        os.close(other_end)
        os.dup2(sink, 2)
        with open(source, "rb") as lines:
            for line in lines:
                if not any(known in line for known in KNOWN):
                    os.write(sink, line)
    finally:
        os._exit(0)
