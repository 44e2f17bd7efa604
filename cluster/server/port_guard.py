"""Both defences of a TensorFlow port of a local cluster: the gate, then the guard.

`python -m cluster.server.port_guard` says whether this kernel allows them, for `fab deploy check` and `start`, which
run it on the node. It prints one line of JSON, `{"machines": ..., "accounts": ..., "privileges": ...}`: for other
machines and for other accounts of this one each `{"holds": true, "line": by what means}`. `holds` is false where ports
would be open to them, and `line` says why. For `privileges` it is false where roles would run as root.
"""

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
    """The gate, which exists before the server listens, and the guard of the listening port."""

    def __init__(self, port: int, host: str, others: Iterable[int] = ()) -> None:
        """Make it in the thread that starts the server. `host` is the address announced for the port.

        The accounts `others` pass, beside our own and root.
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
        """Call it as soon as the port listens, before the server starts. Never raises OSError."""
        self._outcome = guard_loopback(self._port, self._host)
        if self._gate is not None and not self._outcome.guarded and self._outcome.reason != NOT_LISTENING:
            self._outcome = GuardOutcome(self._port, True, GATE_ALONE)

    def answers(self, timeout_seconds: float) -> bool:
        """Whether the server answers us. Our connection must pass the gate, or the gate does not hold."""
        before = 0 if self._gate is None else self._gate.handed_on
        answered = answers(LOOPBACK, self._port, timeout_seconds)
        if answered and self._gate is not None and self._gate.handed_on == before:
            self._gate, self._problem = None, "TensorFlow took a connection past the gate"
        return answered

    @property
    def outcome(self) -> GuardOutcome:
        """How the port is guarded, as far as `put_up` and `answers` know."""
        return replace(self._outcome, every_account=self._problem)

    def report(self, log: logging.Logger) -> None:
        """Log how the port is guarded, as an error where it is open."""
        outcome = self.outcome
        held = outcome.guarded and outcome.every_account is None
        log.log(logging.INFO if held else logging.ERROR, "%s", outcome.line)


def probe() -> GuardOutcome:
    """The outcome for a port that is opened for this probe alone."""
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
    """Probe and print the outcome."""
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
