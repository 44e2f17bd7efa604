"""The two defences of a TensorFlow port where the cluster is one machine, in the order in which they are put up."""

import logging
import os
import socket
import sys
from collections.abc import Iterable
from dataclasses import replace

from cluster.logs.terminal import say_json
from cluster.server.accounts import ROLES_ACCOUNT, account_name, why_root
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

    @property
    def outcome(self) -> GuardOutcome:
        """What keeps whom out, as far as `put_up` and `answers` know."""
        return replace(self._outcome, every_account=self._problem)

    def report(self, log: logging.Logger) -> None:
        """Say so, loudly where something is left open."""
        outcome = self.outcome
        held = outcome.guarded and outcome.every_account is None
        log.log(logging.INFO if held else logging.ERROR, "%s", outcome.line)


def probe() -> GuardOutcome:
    """Guard a port opened for this alone."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        guard = PortGuard(port, "127.0.0.1")
        listener.listen()
        guard.put_up()
        return guard.outcome


def _privileges() -> dict[str, object]:
    if os.geteuid() != 0:
        return {"holds": True, "line": f"roles run as {account_name(os.geteuid())}"}
    obstacle = why_root()
    if obstacle is None:
        return {"holds": True, "line": f"roles run as {account_name(ROLES_ACCOUNT)}, jobs as {account_name(0)}"}
    return {"holds": False, "line": f"roles run as {account_name(0)}: {obstacle}"}


def main() -> int:
    """Probe, and print the outcome."""
    outcome, own, privileges = probe(), account_name(os.geteuid()), _privileges()
    answer = {
        "machines": {"holds": outcome.guarded, "line": outcome.reason},
        "accounts": {"holds": outcome.every_account is None, "line": f"as {own}: {outcome.every_account}"},
        "privileges": privileges,
    }
    if outcome.every_account is None:
        answer["accounts"]["line"] = str(privileges["line"])
    say_json(answer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
