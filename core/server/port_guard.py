"""Keeps other machines and other accounts out of a port that TensorFlow opened on every interface.

A TensorFlow server binds `*:port` whatever its definition says, and executes any graph of any
client. Where a cluster lives on one machine, its listening sockets drop what does not come in over
the loopback interface, without root where the kernel allows it:

- A classic BPF filter, which the kernel consults for the first packet of a handshake and for its
  last, and which accepted connections inherit. What this machine sends to its own LAN address
  travels over loopback too, hence passes. Kernels of 2026 want CAP_NET_ADMIN for a filter on TCP
  (measured: 6.18.44), older ones want nothing.
- SO_BINDTODEVICE, free for the first binding since Linux 5.7. It refuses the machine's own LAN
  address, whose packets count as that interface's: good for clusters that announce a loopback
  address only.

Both keep other machines out. `gate` keeps out other accounts of this machine as well, and must
exist before the server listens.

Between the server's `listen` and the guard lie some milliseconds. A connection may be made then,
but no call is answered, because the server has not started. The guard shuts such connections before
it starts.

`python -m core.server.port_guard` says whether this kernel allows them, for `fab deploy check` and
`start`, which run it on the node. It prints one line of JSON, `{"machines": ..., "accounts": ...,
"privileges": ...}`: for other machines and for other accounts of this one each `{"holds": true,
"line": by what means}`. `holds` is false where ports would be open to them, and `line` says why.
For `privileges` it is false where roles would run as root.
"""

import contextlib
import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from core.cage.kernel import JUMP_IF_EQUAL, LOAD, RETURN, FilterProgram
from core.ground.accounts import ROLES_ACCOUNT, account_name, why_root
from core.ground.addresses import plain_address
from core.logs.terminal import say_json
from core.metrics.sockets import borrowed, is_listening, is_tcp, own_sockets
from core.server.gate import Gate
from core.server.peer_accounts import PeerAccounts
from core.server.probe import answers
from core.server.sockets import connections

SO_ATTACH_FILTER = 26  # asm-generic/socket.h; Python's socket module does not name it
INTERFACE_INDEX = (
    0xFFFFF000 + 8
)  # SKF_AD_OFF + SKF_AD_IFINDEX, linux/filter.h: the interface a packet came in by
WHOLE_PACKET = 0xFFFFFFFF
NOTHING = 0
FILTER = "socket filter"
BINDING = "bound to loopback"
GATE_ALONE = "a gate before it"
NOT_LISTENING = "no socket of this process listens on it"
Means = tuple[str, Callable[[socket.socket], None]]

PATIENCE_SECONDS = 1.0
PAUSE_SECONDS = 0.005
# net/tcp_states.h; the latter is TCP_SYN_RECV
ESTABLISHED = "01"
HANDSHAKE = "03"


@dataclass(frozen=True)
class GuardOutcome:
    """Whether every listening socket of the port is guarded; `reason` says how, or why not.

    `shut` counts the connections from other machines that the guard shut because they came before
    it. `every_account` says why every account of this machine reaches the port; None where only
    ours and root do.
    """

    port: int
    guarded: bool
    reason: str
    shut: int = 0
    every_account: str | None = None

    @property
    def line(self) -> str:
        """Line of the log: how the port is guarded, or what an open port means and the remedy."""
        if not self.guarded:
            return (
                f"PORT {self.port} IS OPEN TO THE WHOLE NETWORK and runs any graph from anyone:"
                f" {self.reason}; announce 127.0.0.1 instead, close the port with a firewall, or"
                " stay off networks you do not trust"
            )
        if self.shut:
            early = f"; {self.shut} early connections from elsewhere were shut"
        else:
            early = ""
        line = f"port {self.port} answers this machine only ({self.reason}{early})"
        account = account_name(os.geteuid())
        if self.every_account is None:
            return (
                f"{line}, and of its accounts {account}{'' if os.geteuid() == 0 else ' and root'}"
            )
        return (
            f"{line}, BUT ANY ACCOUNT OF THIS MACHINE CAN RUN CODE AS {account} THROUGH IT:"
            f" {self.every_account}; share the machine with accounts that you trust only"
        )


def guard_loopback(port: int, host: str = "127.0.0.1") -> GuardOutcome:
    """Guard every socket of this process that listens on `port`, IPv4 and IPv6.

    Never raises OSError.

    `host` is the address this machine announces for the port; it stays reachable from here. Call it
    as soon as the port listens, in a role before the server starts.
    """
    means = [method for method in MEANS if method[0] == FILTER or is_loopback(host)]
    reasons = [_guard(listener, means) for listener in _own(port, listening=True)]
    if not reasons:
        return GuardOutcome(port, False, NOT_LISTENING)
    for guarded, reason in reasons:
        if not guarded:
            return GuardOutcome(port, False, reason)
    # A filter also stops the last packet of a handshake that began before it; a binding does not.
    shut, foreign = shut_foreign_connections(
        port, half_open=any(reason != FILTER for _, reason in reasons)
    )
    if foreign:
        return GuardOutcome(
            port, False, f"connections from {', '.join(foreign)} came before the guard", shut
        )
    return GuardOutcome(port, True, reasons[0][1], shut)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    return host in ("localhost", "::1") or host.startswith("127.")


def _guard(listener: socket.socket, means: Sequence[Means]) -> tuple[bool, str]:
    problems = []
    for name, apply in means:
        try:
            apply(listener)
        except OSError as error:
            problems.append(f"{name}: {error.strerror}")
        else:
            return True, name
    return False, ", ".join(problems)


def attach_filter(listener: socket.socket) -> None:
    """Drop packets that came in by another interface than loopback.

    Raises OSError where the kernel refuses.
    """
    program = FilterProgram.of(
        (LOAD, 0, 0, INTERFACE_INDEX),
        (JUMP_IF_EQUAL, 0, 1, socket.if_nametoindex("lo")),
        (RETURN, 0, 0, WHOLE_PACKET),
        (RETURN, 0, 0, NOTHING),
    )
    listener.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)


def bind_to_loopback(listener: socket.socket) -> None:
    """Accept over the loopback interface only. Raises OSError where the kernel refuses."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo\0")


MEANS: tuple[Means, ...] = (
    (FILTER, attach_filter),
    (BINDING, bind_to_loopback),
)


def shut_foreign_connections(port: int, *, half_open: bool) -> tuple[int, list[str]]:
    """Shut the connections to `port` from other machines.

    Returns their number, and the addresses of those left.

    Waits a second at most for connections that are in the kernel's queue and have no descriptor
    yet. `half_open`: wait for handshakes under way as well, where the guard lets them complete.
    """
    if half_open:
        states = {ESTABLISHED, HANDSHAKE}
    else:
        states = {ESTABLISHED}
    deadline = time.monotonic() + PATIENCE_SECONDS
    count = 0
    while foreign := [
        connection.peer[0]
        for connection in connections()
        if connection.port == port
        and connection.state in states
        and _is_foreign(connection.peer[0])
    ]:
        count += _shut_accepted(port)
        if time.monotonic() > deadline:
            break
        time.sleep(PAUSE_SECONDS)
    return count, sorted(set(foreign))


def _shut_accepted(port: int) -> int:
    count = 0
    for connection in _own(port, listening=False):
        with contextlib.suppress(OSError):
            if _is_foreign(connection.getpeername()[0]):
                connection.shutdown(socket.SHUT_RDWR)
                count += 1
    return count


def _own(port: int, *, listening: bool) -> Iterator[socket.socket]:
    """The TCP sockets of this process at the port: those that listen, or the others."""
    for descriptor, _ in own_sockets():
        with (
            contextlib.suppress(OSError),
            borrowed(descriptor) as view,
        ):  # closed since it was listed
            if is_tcp(view) and is_listening(view) == listening and view.getsockname()[1] == port:
                yield view


def _is_foreign(address: str) -> bool:
    """Return whether another machine has the address: only our own can be bound here."""
    parsed = plain_address(address)
    if parsed.is_loopback:
        return False
    if parsed.version == 4:
        family = socket.AF_INET
    else:
        family = socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as trial:
        try:
            trial.bind((str(parsed), 0))
        except OSError:
            return True
    return False


class PortGuard:
    """The gate, which exists before the server listens, and the guard of the listening port."""

    def __init__(
        self,
        port: int,
        host: str,
        further_accounts: Iterable[int] = (),
        accounts: PeerAccounts | OSError | None = None,
    ) -> None:
        """Make it in the thread that starts the server.

        `host` is the address announced for the port.

        `further_accounts` pass, beside our own and root. `accounts` are those that `Gate` takes,
        or why there are none.
        """
        self._port = port
        self._host = host
        self._outcome = GuardOutcome(port, False, NOT_LISTENING)
        self._gate: Gate | None = None
        self._problem: str | None = None
        try:
            if isinstance(accounts, OSError):
                raise accounts
            self._gate = Gate(port, further_accounts, accounts)
        except OSError as problem:
            self._problem = f"no gate before the port: {problem.strerror}"

    def put_up(self) -> None:
        """Call it as soon as the port listens, before the server starts. Never raises OSError."""
        self._outcome = guard_loopback(self._port, self._host)
        if (
            self._gate is not None
            and not self._outcome.guarded
            and self._outcome.reason != NOT_LISTENING
        ):
            self._outcome = GuardOutcome(self._port, True, GATE_ALONE)

    def answers(self, timeout_seconds: float) -> bool:
        """Whether the server answers us.

        Our connection must pass the gate, or the gate does not hold.
        """
        if self._gate is None:
            before = 0
        else:
            before = self._gate.handed_on
        answered = answers("127.0.0.1", self._port, timeout_seconds)
        if answered and self._gate is not None and self._gate.handed_on == before:
            self._gate = None
            self._problem = "TensorFlow took a connection past the gate"
        return answered

    @property
    def outcome(self) -> GuardOutcome:
        """Guard of the port, as far as `put_up` and `answers` know."""
        return replace(self._outcome, every_account=self._problem)

    def report(self, log: logging.Logger) -> None:
        """Log how the port is guarded, as an error where it is open."""
        outcome = self.outcome
        is_closed = outcome.guarded and outcome.every_account is None
        log.log(logging.INFO if is_closed else logging.ERROR, "%s", outcome.line)


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
        return {
            "holds": True,
            "line": f"roles run as {account_name(ROLES_ACCOUNT)}, jobs as {account_name(0)}",
        }
    return {"holds": False, "line": f"roles run as {account_name(0)}: {obstacle}"}


def main() -> int:
    """Probe and print the outcome."""
    outcome = probe()
    account = account_name(os.geteuid())
    privileges = _privileges()
    answer = {
        "machines": {"holds": outcome.guarded, "line": outcome.reason},
        "accounts": {
            "holds": outcome.every_account is None,
            "line": f"as {account}: {outcome.every_account}",
        },
        "privileges": privileges,
    }
    if outcome.every_account is None:
        answer["accounts"]["line"] = str(privileges["line"])
    say_json(answer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
