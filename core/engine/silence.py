"""How long each guarded server has been silent: the one clock by which a server is lost."""

import time
from dataclasses import dataclass

from core.server.probe import Probes

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
