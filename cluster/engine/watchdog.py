"""The watchdog: a process of its own that can free the coordinator when the coordinator cannot move.

A stopped worker (SIGSTOP, a hung SD card) keeps its connections open, and a coordinator that waits for it inside
TensorFlow holds the interpreter lock: no Python thread or timer of its own can help. So this process, which imports
nothing but the standard library, shuts the coordinator's sockets to that worker from outside (pidfd_getfd, Linux 5.6),
again and again while the fence stands, so that gRPC's reconnect (20 s a try) fails at once as well. Measured: the
blocked call ends 0.1 s after the cut; without the second cut it takes 20 s.

It reads commands on standard input, one a line:

    beat                        the coordinator is alive
    watch NAME HOST PORT        probe this server when the beats stop
    forget NAME
    fence NAME HOST PORT        cut the coordinator's sockets to it until `unfence NAME`
    unfence NAME
    cut HOST PORT               cut the coordinator's sockets to this server once (injected faults)

and ends with its input. When no beat comes for `SILENCE_SECONDS` it fences those watched servers that do not answer a
probe; after `PATIENCE_SECONDS` it kills the coordinator, so that a supervisor can bring it back.
"""

import contextlib
import os
import select
import signal
import sys
import threading
import time
from pathlib import Path

from cluster.control.lines import ask_supervisor
from cluster.logs.terminal import say
from cluster.server.probe import answering
from cluster.server.sockets import cut

SILENCE_SECONDS = 3.0
PATIENCE_SECONDS = 90.0
CUT_INTERVAL_SECONDS = 0.05
PROBE_SECONDS = 2.0
SUPERVISOR_SECONDS = 1.0


def kill_through_supervisor(name: str) -> None:
    """Ask the supervisor, where there is one, to kill the role: a dead process is the surest fence."""
    path = os.environ.get("PSCLUSTER_SUPERVISOR")
    if not path:
        return
    with contextlib.suppress(OSError, ValueError):
        ask_supervisor(Path(path), SUPERVISOR_SECONDS, "kill", task=name)


class Watchdog:
    """State of the watchdog process: whom to watch, whom to keep cut off."""

    def __init__(self, coordinator: int, silence: float = SILENCE_SECONDS, patience: float = PATIENCE_SECONDS) -> None:
        self.coordinator = coordinator
        self.silence, self.patience = silence, patience
        self.watched: dict[str, tuple[str, int]] = {}
        self.fenced: dict[str, tuple[str, int]] = {}
        self.last_beat = time.monotonic()
        self.powerless = False

    def command(self, line: str) -> None:
        """Carry out one line of input."""
        match line.split():
            case ["beat"]:
                # A fence of ours stays up: what is still owed to the stopped worker would freeze the coordinator again.
                self.last_beat = time.monotonic()
            case ["watch", name, host, port]:
                self.watched[name] = (host, int(port))
            case ["forget", name]:
                self.watched.pop(name, None)
            case ["fence", name, host, port]:
                self.fence(name, (host, int(port)))
            case ["unfence", name]:
                self.fenced.pop(name, None)
            case ["cut", host, port]:
                self.cut({(host, int(port))})
            case _:
                say(f"watchdog: cannot read the command {line!r}", error=True)

    def fence(self, name: str, address: tuple[str, int]) -> None:
        """Cut `name` off now, and again whenever the coordinator reconnects."""
        self._fence_all({name: address})

    def _fence_all(self, found: dict[str, tuple[str, int]]) -> None:
        new = {name: address for name, address in found.items() if name not in self.fenced}
        if new:
            self.fenced.update(new)
            self.hold()
            for name in new:  # a supervisor answers once the process is dead: nobody waits for that here
                threading.Thread(target=kill_through_supervisor, args=(name,), daemon=True).start()

    def hold(self) -> None:
        """Cut whatever sockets the coordinator has to fenced servers."""
        if self.fenced:
            self.cut(set(self.fenced.values()))

    def cut(self, addresses: set[tuple[str, int]]) -> None:
        """Cut the coordinator's sockets to these; where that is forbidden, say so once."""
        if self.powerless:
            return
        try:
            cut(self.coordinator, addresses)
        except ProcessLookupError:
            return  # the coordinator has ended: so will our input
        except OSError as problem:
            self.powerless = True
            say(
                f"watchdog: this kernel does not let us cut the coordinator's sockets ({problem.strerror}): from now "
                "on a stopped worker is only killed, where there is a supervisor to do it",
                error=True,
            )

    def look(self) -> None:
        """Act on missing beats."""
        silent = time.monotonic() - self.last_beat
        if silent > self.patience:
            say(f"watchdog: no beat from the coordinator for {silent:.0f} s: killing it", error=True)
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.coordinator, signal.SIGKILL)
            raise SystemExit(1)
        if silent > self.silence:
            asked = {name: address for name, address in self.watched.items() if name not in self.fenced}
            alive = answering(asked, PROBE_SECONDS)
            dead = {name: address for name, address in asked.items() if name not in alive}
            for name, (host, port) in dead.items():
                say(
                    f"watchdog: no beat from the coordinator for {silent:.1f} s and {name} ({host}:{port}) does not "
                    "answer: cutting it off",
                    error=True,
                )
            self._fence_all(dead)


def main(arguments: list[str]) -> None:
    """Watch over the process whose id is the first argument until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the coordinator, which still needs us while it stops
    watchdog = Watchdog(int(arguments[0]), *(float(argument) for argument in arguments[1:]))
    source, rest = sys.stdin.fileno(), b""
    while True:
        wait = CUT_INTERVAL_SECONDS if watchdog.fenced else 1.0
        if select.select([source], [], [], wait)[0]:
            received = os.read(source, 65536)
            if not received:
                return
            *lines, rest = (rest + received).split(b"\n")
            for line in lines:
                watchdog.command(line.decode())
        watchdog.hold()
        watchdog.look()


if __name__ == "__main__":
    main(sys.argv[1:])
