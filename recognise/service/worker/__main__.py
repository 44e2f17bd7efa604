"""`python -m recognise.service.worker CHANNEL PARENT`: starts the processes of models, by forks.

A service starts it before its cage, which lets it start no program. It loads the runtimes, becomes
the account of models where it is root, since this account may read no Python below /root, and opens
no model itself. A request has the arguments and the open files of one process; the socket `life` of
each says how it ended, and its end ends the process.

The process of a model reads the export first, gives up its rights, and only then lets the runtime
parse the model. It answers on each of its channels until it is killed.
"""

import os
import resource
import selectors
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np

from core.cage.calls import forbid_by
from core.cage.landlock import enter, forbid_new_privileges, keep_capabilities, prctl
from core.cage.profiles import calls_of, rights_of
from core.exported.description import model_bytes, read_description
from core.exported.runtimes import PACKAGES, Model, import_runtime, open_content
from core.ground.accounts import MODELS_ACCOUNT, become, die_with_parent, why_root
from core.ground.errors import UsageError, reason_of
from core.ground.files import parsed_json
from recognise.service.worker import (
    CODE,
    LOGITS,
    LONGEST_REQUEST,
    LONGEST_TEXT,
    READY,
    REFUSED,
    STARTED,
    WINDOWS,
    ChannelEndedError,
    receive,
    send,
)

MOST_FILES = 64
CALLS = calls_of("model")
"""It is read before root becomes an account that may not read our packages."""


def compute(
    folder: str,
    sha256: str,
    memory_bytes: int,
    most_windows: int,
    parent: int,
    descriptors: Sequence[int],
) -> None:
    """Answer until the service ends this process, or has ended itself.

    `descriptors` are open: the two files of the export, and a socket for each model.
    """
    described, model_file, *channels = descriptors
    sockets = [socket.socket(fileno=descriptor) for descriptor in channels]
    export = Path(folder)
    try:
        die_with_parent(parent)
        description = read_description(export, check_model=False, file=described)
        if description.sha256 != sha256:
            raise UsageError(f"{folder}: it changed while it was opened: try again")
        content = model_bytes(export, description, model_file)
        import_runtime(description, export)
        _give_up_rights(memory_bytes)
        models = [open_content(content, description, export) for _ in sockets]
    except Exception as problem:  # the service says it to a person
        _refuse(sockets[0], problem)
        return
    send(sockets[0], READY)
    for channel, model in zip(sockets[1:], models[1:], strict=True):
        threading.Thread(target=_answer, args=(channel, model, most_windows), daemon=True).start()
    _answer(sockets[0], models[0], most_windows)


def _give_up_rights(memory_bytes: int) -> None:
    """Give up all but computing: this process reads its packages, and writes and asks nothing.

    Kernels without Landlock forbid calls alone.
    """
    for limit, most in (
        (resource.RLIMIT_DATA, memory_bytes),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, MOST_FILES),
    ):
        resource.setrlimit(limit, (most, most))
    # The service says what this kernel does not hold: nothing hears this process.
    enforced = enter(rights_of("model"))
    with suppress(OSError):  # where a container's own filter of calls lets none add another
        forbid_by(enforced, CALLS)


def leave_root() -> None:
    """Become the account of models where this is root and can, without capabilities anyway."""
    if os.geteuid() == 0 and why_root(account=MODELS_ACCOUNT) is None:
        become(MODELS_ACCOUNT)
    with suppress(OSError):  # where a container's own filter of calls refuses it
        keep_capabilities()


def _answer(channel: socket.socket, model: Model, most_windows: int) -> None:
    """Answer one request after another. The process ends when the service does."""
    shape = model.description.input.shape
    window = 4 * int(np.prod(shape))
    while True:
        try:
            kind, content = receive(channel, most_windows * window)
            if kind != WINDOWS or len(content) % window:
                raise ChannelEndedError("expected whole windows")
            windows = np.frombuffer(content, np.float32).reshape(-1, *shape)
        except (ChannelEndedError, OSError):
            os._exit(0)
        try:
            logits = model.logits(windows)
        except Exception as problem:
            _refuse(channel, problem)
        else:
            send(channel, LOGITS, logits.astype("<f4", copy=False).tobytes())


def _refuse(channel: socket.socket, problem: Exception) -> None:
    reason = reason_of(problem)
    if not isinstance(problem, UsageError):
        reason = f"{type(problem).__name__}: {reason}"
    with suppress(OSError):
        send(channel, REFUSED, reason.encode(errors="replace")[:LONGEST_TEXT])


MOST_DESCRIPTORS = 80
"""Descriptors, more than the life, two files and a channel for each thread of the service."""
PR_SET_DUMPABLE = 4  # linux/prctl.h


@dataclass(frozen=True)
class ChildProcess:
    """A process: its number, the descriptor by which its end is heard, the service's socket."""

    pid: int
    end: int
    life: socket.socket


class ForkServer:
    """The processes that were started here, until the service ends its channel."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._heard = selectors.DefaultSelector()
        self._heard.register(channel, selectors.EVENT_READ)
        self._children: dict[int, ChildProcess] = {}

    def follow(self) -> None:
        """Start and end processes until the service ends."""
        while True:
            for key, _ in self._heard.select():
                if key.fileobj is self._channel:
                    if not self._take():
                        return
                elif key.data.pid not in self._children:
                    continue  # its end was heard with what is heard of its life
                elif key.fileobj is key.data.life:
                    self._heard.unregister(key.data.life)
                    os.kill(key.data.pid, signal.SIGKILL)
                else:
                    self._reap(key.data)

    def _take(self) -> bool:
        """Start the process of one request; return whether the service is still there."""
        request, descriptors, _, _ = socket.recv_fds(
            self._channel, LONGEST_REQUEST, MOST_DESCRIPTORS
        )
        if not request:
            return False
        life, *rest = descriptors
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(life)
                self._leave()
                _go_first()
                compute(**parsed_json(request), parent=parent, descriptors=rest)
            finally:
                os._exit(1)
        for descriptor in rest:
            os.close(descriptor)
        child = ChildProcess(pid, os.pidfd_open(pid), socket.socket(fileno=life))
        self._children[pid] = child
        self._heard.register(child.end, selectors.EVENT_READ, child)
        self._heard.register(child.life, selectors.EVENT_READ, child)
        return True

    def _reap(self, child: ChildProcess) -> None:
        _, status = os.waitpid(child.pid, 0)
        with suppress(OSError):
            child.life.send(CODE.pack(os.waitstatus_to_exitcode(status)))
        self._heard.unregister(child.end)
        with suppress(KeyError):
            self._heard.unregister(child.life)
        del self._children[child.pid]
        os.close(child.end)
        child.life.close()

    def _leave(self) -> None:
        """Close in a new process what reaches the service and the other processes."""
        self._heard.close()
        self._channel.close()
        for child in self._children.values():
            os.close(child.end)
            child.life.close()


def _go_first() -> None:
    """Have the kernel end this process first where memory is short."""
    # A process that changed its account owns its files in /proc while it may be traced alone.
    prctl(PR_SET_DUMPABLE, 1)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    prctl(PR_SET_DUMPABLE, 0)


def main(arguments: Sequence[str]) -> None:
    """Start processes until the service ends."""
    descriptor, parent = map(int, arguments)
    for number in (signal.SIGINT, signal.SIGTERM):  # the service decides when this process ends
        signal.signal(number, signal.SIG_IGN)
    channel = socket.socket(fileno=descriptor)
    die_with_parent(parent)
    for module in PACKAGES:
        with suppress(ImportError):
            import_module(module)
    forbid_new_privileges()
    leave_root()
    channel.send(STARTED)
    ForkServer(channel).follow()


if __name__ == "__main__":
    main(sys.argv[1:])
