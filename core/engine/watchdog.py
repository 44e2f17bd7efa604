"""The watchdog: a process of its own that frees the coordinator when the coordinator is frozen.

A stopped worker (SIGSTOP, a hung SD card) keeps its connections open. A coordinator that waits for
it inside TensorFlow holds the interpreter lock, so none of its own Python threads or timers can
help. This process imports no TensorFlow. It shuts the coordinator's sockets to that worker from
outside (pidfd_getfd, Linux 5.6), again and again while the fence stands, so that gRPC's reconnect
(20 s a try) fails at once as well. Measured: the blocked call ends 0.1 s after the cut; without the
second cut it takes 20 s. `core.engine.guardian` is the coordinator's end.

It reads commands on standard input, one a line:

    heartbeat               the coordinator is alive
    guard NAME HOST PORT    probe this server all the time: it holds parameters
    watch NAME HOST PORT    probe this server when the heartbeats stop
    forget NAME             do not watch it any more
    begin                   the coordinator begins an operation of its own on the guarded servers
    end                     that operation has ended
    fence NAME HOST PORT    cut the coordinator's sockets to it until `unfence NAME`
    unfence NAME
    cut HOST PORT           cut the coordinator's sockets to this server once (injected faults)

and ends with its input. After `SILENCE_SECONDS` without a heartbeat it fences the watched servers
that do not answer a probe. After `PATIENCE_SECONDS` it kills the coordinator, so that a supervisor
can start it again.

A guarded server that answers no probe for `SILENT_SECONDS` is lost, whatever the
coordinator does meanwhile. The watchdog writes `lost NAME SECONDS` on standard output and fences
it, so that every call that waits for it ends. An operation that lasts `OPERATION_SECONDS`, although
the servers answer, ends in the same way: `overdue SECONDS`, and all guarded servers are fenced. If
the cut does not end the operation, the watchdog kills the coordinator.

It writes `alive` every second, so that a watchdog that is stopped itself is replaced. No time
counts in which it was stopped.
"""

import contextlib
import os
import selectors
import signal
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from core.control.client import ask_supervisor
from core.logs import say
from core.server.sockets import Probes, answering, cut

SILENT_SECONDS = 10.0
"""A server that answers no probe for this long is lost: longer than an overloaded Pi needs for an
answer."""

PROBE_EVERY_SECONDS = 2.0

STANDSTILL_SECONDS = 3.0
"""A turn counts as this much silence at most: while we ourselves are stopped, no server is silent.
"""


@dataclass(eq=False)
class _Guarded:
    host: str
    port: int
    silent_seconds: float = 0.0
    asked_at: float = float("-inf")
    heard: bool = False
    """Whether it answered since the last turn."""
    lost: bool = False


class Silence:
    """Probes the guarded servers all the time, all at the same time."""

    def __init__(self, limit_seconds: float = SILENT_SECONDS) -> None:
        self._limit_seconds = limit_seconds
        self._every_seconds = min(PROBE_EVERY_SECONDS, limit_seconds / 4)
        self._guarded: dict[str, _Guarded] = {}
        self._probes = Probes[_Guarded]()
        self.selector = self._probes.selector
        """A caller that registers a descriptor of its own here is woken by it too."""
        self._before = time.monotonic()
        self.awake_seconds = 0.0
        """Time since the beginning, without that in which we ourselves were stopped."""

    def guard(self, name: str, host: str, port: int) -> None:
        """Probe this server from now on."""
        self._guarded[name] = _Guarded(host, port)

    def wait(self, longest_seconds: float) -> dict[str, float]:
        """Wait at most this long for an answer; return the silence of each server lost since.

        It is in seconds, by the server's name.
        """
        self._ask(time.monotonic())
        for server, answered in self._probes.wait(longest_seconds):
            server.heard |= answered
        now = time.monotonic()
        passed = min(now - self._before, STANDSTILL_SECONDS)
        self._before = now
        self.awake_seconds += passed
        lost = {}
        for name, server in self._guarded.items():
            if server.heard:
                server.silent_seconds = 0.0
            else:
                server.silent_seconds = server.silent_seconds + passed
            server.heard = False
            if not server.lost and server.silent_seconds >= self._limit_seconds:
                server.lost = True
                lost[name] = server.silent_seconds
        return lost

    def _ask(self, now: float) -> None:
        for server in self._guarded.values():
            if not server.lost and now - server.asked_at >= self._every_seconds:
                server.asked_at = now
                # As long as it may be silent: one that needs seconds for each answer is slow, not
                # lost.
                self._probes.ask(server, server.host, server.port, self._limit_seconds)

    def close(self) -> None:
        """End all probes."""
        self._probes.close()


SILENCE_SECONDS = 3.0
PATIENCE_SECONDS = 90.0
CUT_INTERVAL_SECONDS = 0.05
PROBE_SECONDS = 2.0
SUPERVISOR_SECONDS = 1.0
TURN_SECONDS = 1.0
STUCK_SECONDS = 20.0
"""Bound of an operation after what it waits for was cut off. A kernel may not let us cut."""
OPERATION_SECONDS = 90.0
"""Longer than a shard of a Pi's whole memory takes on a network of 100 Mbit/s."""


def kill_through_supervisor(name: str) -> None:
    """Have the supervisor, if there is one, kill the role: a dead process is the surest fence."""
    path = os.environ.get("PSCLUSTER_SUPERVISOR")
    if not path:
        return
    with contextlib.suppress(OSError, ValueError):
        ask_supervisor(Path(path), SUPERVISOR_SECONDS, "kill", task=name)


class Watchdog:
    """The watchdog process: the servers to guard, those to watch, and those to keep cut off."""

    def __init__(
        self,
        coordinator: int,
        silence: float = SILENCE_SECONDS,
        patience: float = PATIENCE_SECONDS,
        silent: float = SILENT_SECONDS,
        operation: float = OPERATION_SECONDS,
        stuck: float = STUCK_SECONDS,
    ) -> None:
        """`silent`: seconds until a guarded server is lost.

        `operation`: those that one operation may last.

        `stuck`: those that it may last after it was cut off.
        """
        self.coordinator = coordinator
        self.silence = silence
        self.patience = patience
        self.operation = operation
        self.stuck = stuck
        self.guarded: dict[str, tuple[str, int]] = {}
        self.answers = Silence(silent)
        self.operation_began: float | None = None
        self.cut_off_at: float | None = None
        self.watched: dict[str, tuple[str, int]] = {}
        self.fenced: dict[str, tuple[str, int]] = {}
        self.last_heartbeat = 0.0
        self.powerless = False

    def command(self, line: str) -> None:
        """Carry out one line of input."""
        match line.split():
            case ["heartbeat"]:
                # Our fence stays: calls that still wait for the stopped worker would freeze the
                # coordinator again.
                self.last_heartbeat = self.answers.awake_seconds
            case ["guard", name, host, port]:
                self.guarded[name] = (host, int(port))
                self.answers.guard(name, host, int(port))
            case ["watch", name, host, port]:
                self.watched[name] = (host, int(port))
            case ["forget", name]:
                self.watched.pop(name, None)
            case ["begin"]:
                self.operation_began = self.answers.awake_seconds
            case ["end"]:
                self.operation_began = None
            case ["fence", name, host, port]:
                self.fence({name: (host, int(port))})
            case ["unfence", name]:
                self.fenced.pop(name, None)
            case ["cut", host, port]:
                self.cut({(host, int(port))})
            case _:
                say(f"watchdog: cannot read the command {line!r}", error=True)

    def fence(self, servers: dict[str, tuple[str, int]]) -> None:
        """Cut these servers off now, and again whenever the coordinator reconnects."""
        new = {name: address for name, address in servers.items() if name not in self.fenced}
        if new:
            self.fenced.update(new)
            self.hold()
            for name in new:  # a supervisor answers only once the process is dead
                threading.Thread(target=kill_through_supervisor, args=(name,), daemon=True).start()

    def hold(self) -> None:
        """Cut all sockets of the coordinator to fenced servers."""
        if self.fenced:
            self.cut(set(self.fenced.values()))

    def cut(self, addresses: set[tuple[str, int]]) -> None:
        """Cut the coordinator's sockets to these addresses.

        It reports once where the kernel forbids it.
        """
        if self.powerless:
            return
        try:
            cut(self.coordinator, addresses)
        except ProcessLookupError:
            return  # the coordinator has ended, and so will our input
        except OSError as problem:
            self.powerless = True
            say(
                "watchdog: this kernel does not let us cut the coordinator's sockets"
                f" ({problem.strerror}): from now on a stopped worker is only killed, where there"
                " is a supervisor to do it",
                error=True,
            )

    def lose(self, silences: dict[str, float]) -> None:
        """Report these guarded servers, by the seconds of their silence, and cut them off."""
        for name, seconds in silences.items():
            host, port = self.guarded[name]
            say(
                f"watchdog: {name} ({host}:{port}) has answered no probe for {seconds:.0f} s:"
                " cutting it off",
                error=True,
            )
            say(f"lost {name} {seconds:.0f}")  # before the cut: who is cut off asks why at once
            self.cut_off_at = self.answers.awake_seconds
        self.fence({name: self.guarded[name] for name in silences})

    def end_overdue(self) -> None:
        """Cut off all guarded servers if an operation lasts too long.

        Kill the coordinator if that does not end it.
        """
        if self.operation_began is None:
            return
        now = self.answers.awake_seconds
        if self.cut_off_at is None and now - self.operation_began >= self.operation:
            say(f"overdue {self.operation:.0f}")
            self.cut_off_at = now
            self.fence(self.guarded)
        if (
            self.cut_off_at is not None
            and now - max(self.cut_off_at, self.operation_began) >= self.stuck
        ):
            self.kill("an operation of the coordinator waits for a server that it was cut off from")

    def kill(self, why: str) -> NoReturn:
        """Kill the coordinator, so that its supervisor starts it again, and end."""
        say(f"watchdog: {why}: killing it", error=True)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.coordinator, signal.SIGKILL)
        raise SystemExit(1)

    def check_heartbeat(self) -> None:
        """Check the time since the last heartbeat, and act on it."""
        silent = self.answers.awake_seconds - self.last_heartbeat
        if silent > self.patience:
            self.kill(f"no heartbeat from the coordinator for {silent:.0f} s")
        if silent > self.silence:
            probed = {
                name: address for name, address in self.watched.items() if name not in self.fenced
            }
            alive = answering(probed, PROBE_SECONDS)
            dead = {name: address for name, address in probed.items() if name not in alive}
            for name, (host, port) in dead.items():
                say(
                    f"watchdog: no heartbeat from the coordinator for {silent:.1f} s and {name}"
                    f" ({host}:{port}) does not answer: cutting it off",
                    error=True,
                )
            self.fence(dead)


def main(arguments: list[str]) -> None:
    """Watch the process whose id is the first argument until standard input ends."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C is for the coordinator, which needs us until it has stopped
    watchdog = Watchdog(int(arguments[0]), *(float(argument) for argument in arguments[1:]))
    source = sys.stdin.fileno()
    rest = b""
    os.set_blocking(source, False)
    watchdog.answers.selector.register(source, selectors.EVENT_READ)
    reported = 0.0
    while True:
        lost = watchdog.answers.wait(CUT_INTERVAL_SECONDS if watchdog.fenced else TURN_SECONDS)
        with contextlib.suppress(BlockingIOError):
            received = os.read(source, 65536)
            if not received:
                return
            *lines, rest = (rest + received).split(b"\n")
            for line in lines:
                watchdog.command(line.decode())
        if watchdog.answers.awake_seconds - reported >= TURN_SECONDS:
            reported = watchdog.answers.awake_seconds
            say("alive")
        watchdog.lose(lost)
        watchdog.end_overdue()
        watchdog.hold()
        watchdog.check_heartbeat()


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except BrokenPipeError:  # the coordinator has ended
        os._exit(0)
