"""The door before Prometheus: it answers this machine's own names and no other site's page.

A page of any site can point its own name here (DNS rebinding) and would then read all figures.
Prometheus itself does not look at the Host header. Standard library alone: on a node this very file
is a program, without our packages.
"""

import base64
import ipaddress
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from types import FrameType

MOST_HEAD_BYTES = 64 << 10
MOST_CONNECTIONS = 64
HEAD_SECONDS = 10.0
IDLE_SECONDS = 300.0
CONNECT_SECONDS = 10.0
_PIECE_BYTES = 64 << 10
_END = b"\r\n\r\n"
_REQUEST = re.compile(r"[A-Z]{1,16} /[^\s]* HTTP/1\.[01]")
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)")
_OURS = frozenset({"connection", "keep-alive", "proxy-connection", "upgrade", "authorization"})
"""Headers that are between us and Prometheus: one request a connection, and our own password."""


def refusal(head: str, names: Collection[str]) -> tuple[str, str] | None:
    """Status and reason where this head of a request is not passed on. `names`: besides addresses.

    Pure.
    """
    first, *lines = head.split("\r\n")
    parsed = [_HEADER.fullmatch(line) for line in lines]
    headers = [(one[1].lower(), one[2].strip()) for one in parsed if one is not None]
    if _REQUEST.fullmatch(first) is None or len(headers) != len(lines):
        return "400 Bad Request", "expected a request of HTTP/1.1 for a path"
    hosts = [value for name, value in headers if name == "host"]
    if len(hosts) != 1 or not is_ours(hosts[0], names):
        return (
            "421 Misdirected Request",
            "this answers to localhost, its address and its machine's name alone",
        )
    origins = [value.partition("://")[2] for name, value in headers if name == "origin"]
    if any(origin.lower() != hosts[0].lower() for origin in origins):
        return "403 Forbidden", "this answers no page of another site"
    return None


def is_ours(host: str, names: Collection[str]) -> bool:
    """Whether a Host header is an address or one of `names`.

    A foreign DNS may point any other name here.
    """
    if host.rpartition(":")[2].isdecimal() and not host.endswith("]"):
        bare = host.rpartition(":")[0]
    else:
        bare = host
    if bare.lower().rstrip(".") in names:
        return True
    try:
        ipaddress.ip_address(bare.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def own_names() -> frozenset[str]:
    """What this machine is called."""
    name = socket.gethostname().lower()
    short = name.partition(".")[0]
    return frozenset({"localhost", name, short, f"{short}.local"})


class Guard:
    """Passes requests on to Prometheus, each over a connection of its own."""

    def __init__(
        self,
        listener: socket.socket,
        inner: tuple[str, int],
        names: Collection[str],
        password: str = "",
    ) -> None:
        """Takes over the listener. With a `password` Prometheus answers to this guard alone."""
        self._listener = listener
        self._inner = inner
        self._names = names
        given = base64.b64encode(f"guard:{password}".encode()).decode()
        if password:
            self._more = f"\r\nAuthorization: Basic {given}"
        else:
            self._more = ""
        self._places = threading.Semaphore(MOST_CONNECTIONS)
        self._thread = threading.Thread(target=self._accept, name="guard", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def close(self) -> None:
        """Answer no more; what is open ends with its own limits."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        if self._thread.ident is not None:  # it began
            self._thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                if self._listener.fileno() < 0:
                    return
                time.sleep(0.1)  # short of descriptors, or closing
                continue
            if self._places.acquire(blocking=False):
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()
            else:
                client.close()

    def _serve(self, client: socket.socket) -> None:
        try:
            with client, suppress(OSError):
                self._answer(client)
        finally:
            self._places.release()

    def _answer(self, client: socket.socket) -> None:
        end = time.monotonic() + HEAD_SECONDS
        begun = b""
        while _END not in begun:
            client.settimeout(max(0.01, end - time.monotonic()))
            piece = client.recv(_PIECE_BYTES)
            begun += piece
            if not piece or len(begun) > MOST_HEAD_BYTES:
                return
        before, _, after = begun.partition(_END)
        head = before.decode("latin-1")
        refused = refusal(head, self._names)
        if refused is not None:
            status, why = refused
            body = f"{why}\n".encode()
            told = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}"
            client.sendall(f"{told}\r\nConnection: close\r\n\r\n".encode() + body)
            return
        with socket.create_connection(self._inner, CONNECT_SECONDS) as inner:
            first, *lines = head.split("\r\n")
            kept = [line for line in lines if line.partition(":")[0].lower() not in _OURS]
            passed = "\r\n".join((first, *kept)) + f"{self._more}\r\nConnection: close"
            inner.sendall(passed.encode("latin-1") + _END + after)
            for each in (client, inner):
                each.settimeout(IDLE_SECONDS)
            upward = threading.Thread(target=_pump, args=(client, inner), daemon=True)
            upward.start()
            _pump(inner, client)
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads it
            upward.join()


def _pump(source: socket.socket, target: socket.socket) -> None:
    """Pass on what comes until its end."""
    with suppress(OSError):
        while piece := source.recv(_PIECE_BYTES):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)


def main(words: Sequence[str]) -> int:
    """Run Prometheus at INNER and answer at LISTEN: `guard.py LISTEN INNER COMMAND...`.

    The result is Prometheus's exit code.

    Signals go to Prometheus. Both addresses are `host:port`.
    """
    (host, _, port), (inner, _, inner_port) = words[0].rpartition(":"), words[1].rpartition(":")
    listener = socket.create_server((host, int(port)))
    child = subprocess.Popen(words[2:])

    def pass_on(number: int, _frame: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            child.send_signal(number)

    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, pass_on)
    Guard(listener, (inner, int(inner_port)), own_names()).start()
    code = child.wait()
    if code >= 0:
        return code
    return 128 - code


if __name__ == "__main__":
    ended = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(ended)  # threads may still wait for readers
