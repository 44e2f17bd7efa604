"""The two defences of a TensorFlow port where the cluster is one machine, in the order in which they are put up."""

import logging
from collections.abc import Iterable
from dataclasses import replace

from cluster.server.gate import Gate
from cluster.server.guard import NOT_LISTENING, GuardOutcome, guard_loopback
from cluster.server.probe import answers

LOOPBACK = "127.0.0.1"
GATE_ALONE = "a gate before it"


class PortGuard:
    """The gate, which is there before the server listens, and what the kernel does for a port that listens."""

    def __init__(self, port: int, host: str, others: Iterable[int] = ()) -> None:
        """To be made by the thread that will start the server. `host` is the address announced for the port.

        Accounts `others` are let in beside our own and root.
        """
        self._port, self._host = port, host
        self._outcome = GuardOutcome(port, False, NOT_LISTENING)
        self._gate: Gate | None = None
        self._problem: str | None = None
        try:
            self._gate = Gate(port, others)
        except OSError as problem:
            self._problem = f"no gate before the port: {problem.strerror}"

    def put_up(self) -> None:
        """To be called as soon as the port listens, before the server is started. Never raises OSError."""
        self._outcome = guard_loopback(self._port, self._host)
        if self._gate is not None and not self._outcome.guarded and self._outcome.reason != NOT_LISTENING:
            self._outcome = GuardOutcome(self._port, True, GATE_ALONE)

    def answers(self, timeout_seconds: float) -> bool:
        """Whether the server answers us; a connection of ours has to come through the gate."""
        before = 0 if self._gate is None else self._gate.handed_on
        answered = answers(LOOPBACK, self._port, timeout_seconds)
        if answered and self._gate is not None and self._gate.handed_on == before:
            self._gate, self._problem = None, "TensorFlow took a connection past the gate"
        return answered

    def report(self, log: logging.Logger) -> None:
        """Say what keeps others out, loudly where something is left open."""
        outcome = replace(self._outcome, every_account=self._problem)
        held = outcome.guarded and outcome.every_account is None
        log.log(logging.INFO if held else logging.ERROR, "%s", outcome.line)
