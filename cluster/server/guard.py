"""Keeps other machines out of a port that TensorFlow opened on every interface.

A TensorFlow server binds `*:port` whatever its definition says, and executes any graph of any client. Where a cluster
lives on one machine, its listening sockets drop what does not come in over the loopback interface, without root where
the kernel allows it:

- A classic BPF filter, which the kernel consults for the first packet of a handshake and for its last, and which
  accepted connections inherit. What this machine sends to its own LAN address travels over loopback too, hence passes.
  Kernels of 2026 want CAP_NET_ADMIN for a filter on TCP (measured: 6.18.44), older ones want nothing.
- SO_BINDTODEVICE, free for the first binding since Linux 5.7. It refuses the machine's own LAN address, whose packets
  count as that interface's: good for clusters that announce a loopback address only.

Both keep other machines out. `gate` keeps out other accounts of this machine as well, and must exist before the server
listens.

Between the server's `listen` and the guard lie some milliseconds. A connection may be made then, but no call is
answered, because the server has not started. The guard shuts such connections before it starts.
"""

import contextlib
import ctypes
import ipaddress
import os
import socket
import struct
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cluster.metrics.sockets import borrowed, is_listening, is_tcp, own_sockets
from cluster.server.accounts import account_name

LOOPBACK = "lo"
SO_ATTACH_FILTER = 26  # asm-generic/socket.h; Python's socket module does not name it
LOAD_WORD_ABSOLUTE, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
INTERFACE_INDEX = 0xFFFFF000 + 8  # SKF_AD_OFF + SKF_AD_IFINDEX, linux/filter.h: the interface a packet came in by
WHOLE_PACKET, NOTHING = 0xFFFFFFFF, 0
FILTER, BINDING = "socket filter", "bound to loopback"
NOT_LISTENING = "no socket of this process listens on it"
Means = tuple[str, Callable[[socket.socket], None]]

PATIENCE_SECONDS = 1.0
PAUSE_SECONDS = 0.005
TABLES = ("/proc/self/net/tcp", "/proc/self/net/tcp6")
ESTABLISHED, HANDSHAKE = "01", "03"  # net/tcp_states.h; the latter is TCP_SYN_RECV
WORD_DIGITS = 8


@dataclass(frozen=True)
class GuardOutcome:
    """Whether every listening socket of the port is guarded; `reason` says how, or why not.

    `shut` counts the connections from other machines that the guard shut because they came before it. `every_account`
    says why every account of this machine reaches the port; None where only ours and root do.
    """

    port: int
    guarded: bool
    reason: str
    shut: int = 0
    every_account: str | None = None

    @property
    def line(self) -> str:
        """For the log: how the port is guarded, or what an unguarded port means and the remedy."""
        if not self.guarded:
            return (
                f"PORT {self.port} IS OPEN TO THE WHOLE NETWORK and runs any graph from anyone: {self.reason}; "
                "announce 127.0.0.1 instead, close the port with a firewall, or stay off networks you do not trust"
            )
        early = f"; {self.shut} early connections from elsewhere were shut" if self.shut else ""
        line = f"port {self.port} answers this machine only ({self.reason}{early})"
        own = account_name(os.geteuid())
        if self.every_account is None:
            return f"{line}, and of its accounts {own}{'' if os.geteuid() == 0 else ' and root'}"
        return (
            f"{line}, BUT ANY ACCOUNT OF THIS MACHINE CAN RUN CODE AS {own} THROUGH IT: {self.every_account}; "
            "share the machine with accounts that you trust only"
        )


def guard_loopback(port: int, host: str = "127.0.0.1") -> GuardOutcome:
    """Guard every socket of this process that listens on `port`, IPv4 and IPv6. Never raises OSError.

    `host` is the address this machine announces for the port; it stays reachable from here. Call it as soon as the port
    listens, in a role before the server starts.
    """
    means = [one for one in MEANS if one[0] == FILTER or is_loopback(host)]
    reasons = []
    for descriptor, _ in own_sockets():
        try:
            with borrowed(descriptor) as view:
                if is_tcp(view) and is_listening(view) and view.getsockname()[1] == port:
                    reasons.append(_guard(view, means))
        except OSError:  # closed since it was listed
            continue
    if not reasons:
        return GuardOutcome(port, False, NOT_LISTENING)
    for guarded, reason in reasons:
        if not guarded:
            return GuardOutcome(port, False, reason)
    # A filter also stops the last packet of a handshake that began before it; a binding does not.
    shut, left = shut_foreign_connections(port, half_open=any(reason != FILTER for _, reason in reasons))
    if left:
        return GuardOutcome(port, False, f"connections from {', '.join(left)} came before the guard", shut)
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
    """Drop packets that came in by another interface than loopback. Raises OSError where the kernel refuses."""
    program = b"".join(
        struct.pack("=HBBI", *instruction)
        for instruction in (
            (LOAD_WORD_ABSOLUTE, 0, 0, INTERFACE_INDEX),
            (JUMP_IF_EQUAL, 0, 1, socket.if_nametoindex(LOOPBACK)),
            (RETURN, 0, 0, WHOLE_PACKET),
            (RETURN, 0, 0, NOTHING),
        )
    )
    buffer = ctypes.create_string_buffer(program, len(program))  # alive until the kernel has copied it
    listener.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("@HP", 4, ctypes.addressof(buffer)))


def bind_to_loopback(listener: socket.socket) -> None:
    """Accept over the loopback interface only. Raises OSError where the kernel refuses."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, LOOPBACK.encode() + b"\0")


MEANS: tuple[Means, ...] = (
    (FILTER, attach_filter),
    (BINDING, bind_to_loopback),
)


def shut_foreign_connections(port: int, *, half_open: bool) -> tuple[int, list[str]]:
    """Shut the connections to `port` from other machines; returns their number, and the addresses of those left.

    Waits a second at most for connections that are in the kernel's queue and have no descriptor yet. `half_open`: wait
    for handshakes under way as well, where the guard lets them complete.
    """
    states = {ESTABLISHED, HANDSHAKE} if half_open else {ESTABLISHED}
    deadline = time.monotonic() + PATIENCE_SECONDS
    count = 0
    while left := [remote for remote in _remotes(port, states) if _is_foreign(remote)]:
        count += _shut_accepted(port)
        if time.monotonic() > deadline:
            break
        time.sleep(PAUSE_SECONDS)
    return count, sorted(set(left))


def _shut_accepted(port: int) -> int:
    count = 0
    for descriptor, _ in own_sockets():
        with contextlib.suppress(OSError), borrowed(descriptor) as view:
            if not is_tcp(view) or is_listening(view) or view.getsockname()[1] != port:
                continue
            if _is_foreign(view.getpeername()[0]):
                view.shutdown(socket.SHUT_RDWR)
                count += 1
    return count


def _remotes(port: int, states: set[str]) -> list[str]:
    """Addresses connected to a local port, from the kernel's table, including connections not yet accepted."""
    remotes = []
    for table in TABLES:
        with contextlib.suppress(FileNotFoundError), open(table, encoding="ascii") as lines:  # no IPv6: no tcp6
            next(lines)
            for line in lines:
                _, local, remote, state = line.split()[:4]
                if state in states and int(local.rpartition(":")[2], 16) == port:
                    remotes.append(table_address(remote.rpartition(":")[0]))
    return remotes


def table_address(digits: str) -> str:
    """An address from /proc/net/tcp: 32-bit words in the machine's byte order, in hexadecimal."""
    words = [int(digits[k : k + WORD_DIGITS], 16) for k in range(0, len(digits), WORD_DIGITS)]
    raw = b"".join(word.to_bytes(4, sys.byteorder) for word in words)
    return str(ipaddress.ip_address(raw))


def _is_foreign(address: str) -> bool:
    """Whether an address belongs to another machine: only an address of this one can be bound here."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    parsed = getattr(parsed, "ipv4_mapped", None) or parsed
    if parsed.is_loopback:
        return False
    family = socket.AF_INET if parsed.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as trial:
        try:
            trial.bind((str(parsed), 0))
        except OSError:
            return True
    return False
