"""What TensorFlow finds when it is loaded: its environment, and a quiet stderr.

Import this module before it.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from core.ground.shell import without_foreign
from core.server.session_threads import one_session_thread

without_foreign(os.environ)
one_session_thread()
# GRPC_FAIL_FAST: a call to a dead task fails instead of waiting (community RFC 355). "true", not
# "use_caller" as in the roles: the call by which a worker joins asks to wait, and the coordinator
# would wait without end for a worker that is stopped or killed just then, even with its connections
# cut (measured). ENQUEUE streaming off: one stopped worker would block the stream that all calls
# share.
os.environ["GRPC_FAIL_FAST"] = "true"
os.environ["TF_ENABLE_EAGER_CLIENT_STREAMING_ENQUEUE"] = "False"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")


KNOWN = (
    b"WARNING: All log messages before absl::InitializeLog() is called",
    b"oneDNN custom operations are on.",
)
"""Written by the libraries' static initializers, before any log level can be set (measured with
TensorFlow 2.21: also absl's own SetMinLogLevel, called through ctypes, comes too late). The second
has no switch but the one that changes numerics."""
LEVEL = "TF_CPP_MIN_LOG_LEVEL"
OUR_LEVEL = "3"


@contextmanager
def loading_quietly() -> Iterator[None]:
    """Import TensorFlow inside: its lines on descriptor 2 arrive, but for the `KNOWN` ones.

    A child process passes the lines on as they come, so that nothing is lost when a library aborts
    the process. Enter it while there is one thread. With $TF_CPP_MIN_LOG_LEVEL set by the user
    every line arrives.
    """
    if os.environ.get(LEVEL, OUR_LEVEL) != OUR_LEVEL:
        yield
        return
    opened: list[int] = []
    try:
        opened.append(os.dup(2))
        opened.extend(os.pipe())
        child = os.fork()
    except OSError:  # no stderr, or no process left: hiding two lines is not worth an error
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
    """The child: it has passed every line on when the last writer ends, and ends then."""
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        os.close(other_end)
        os.dup2(sink, 2)
        with open(source, "rb") as lines:
            for line in lines:
                if not any(marker in line for marker in KNOWN):
                    os.write(sink, line)
    finally:
        os._exit(0)
