"""`python -m recognise.service.worker.nursery CHANNEL PARENT`: forks the processes of models.

A service starts it before its cage, which lets it start no program. It loads the runtimes, becomes
the account of models where it is root, and opens no model itself. A request has the arguments and
the open files of one process; the socket `life` of each says how it ended, and its end ends the
process.
"""

import os
import selectors
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from core.cage.landlock import forbid_new_privileges, prctl
from core.exported.runtimes import PACKAGES
from core.ground.accounts import die_with_parent
from core.ground.files import parsed_json
from recognise.service.worker import __main__ as worker
from recognise.service.worker.starting import CODE, LONGEST_REQUEST, READY

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
                _work(parsed_json(request), rest, parent)
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


def _work(arguments: Mapping[str, Any], descriptors: Sequence[int], parent: int) -> None:
    # A process that changed its account owns its files in /proc while it may be traced alone.
    prctl(PR_SET_DUMPABLE, 1)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    prctl(PR_SET_DUMPABLE, 0)
    described, model, *channels = descriptors
    worker.main(**arguments, parent=parent, channels=channels, files=(described, model))


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
    worker.leave_root()
    channel.send(READY)
    ForkServer(channel).follow()


if __name__ == "__main__":
    main(sys.argv[1:])
