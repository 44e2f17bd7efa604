"""The door before Prometheus: no page of another site reads the figures."""

import http.client
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from core.control.rules import is_ours
from deploy.monitor import guard
from deploy.monitor.guard import Guard, refusal
from tests.ports import free_port

NAMES = frozenset({"localhost", "rpi17"})
OURS = ["localhost", "LOCALHOST:9090", "127.0.0.1:9090", "rpi17:9090", "rpi17.", "[::1]:9090"]
FOREIGN = [
    "evil.example:9090",
    "127.0.0.1.evil.example",
    "",
    "rpi17.evil.example",
    "localhost@evil",
]


def head(host: str, *more: str, first: str = "GET /api/v1/query?query=up HTTP/1.1") -> str:
    return "\r\n".join((first, f"Host: {host}", *more))


@pytest.mark.parametrize("host", OURS)
def test_its_own_names_and_addresses_are_answered(host: str) -> None:
    assert refusal(head(host), NAMES) is None
    assert refusal(head(host, f"Origin: http://{host}"), NAMES) is None
    assert is_ours(host, NAMES)


def test_a_machine_that_is_called_by_its_domain_too_has_its_short_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "Rpi17.home.arpa")
    assert guard.own_names() == {"localhost", "rpi17.home.arpa", "rpi17", "rpi17.local"}


def test_a_guard_that_never_began_closes() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    Guard(listener, ("127.0.0.1", 1), NAMES).close()
    assert listener.fileno() < 0


REFUSED = [
    *((head(host), "421") for host in FOREIGN),
    *(
        (head("127.0.0.1:9090", f"Origin: {origin}"), "403")
        for origin in (
            "https://evil.example",
            "null",
            "http://localhost:1",
            "http://127.0.0.1:9090@evil",
        )
    ),
    # What could be read otherwise.
    (head("localhost", first="GET http://evil.example/ HTTP/1.1"), ""),
    (head("localhost", first="GET / HTTP/2.0"), ""),
    (head("localhost", "Host: evil.example"), ""),
    (head("localhost\nHost: evil.example"), ""),
    (head("localhost", " folded: evil"), ""),
    (head("localhost", "Host : evil.example"), ""),
    (head("localhost", "x: a\rHost: evil.example"), ""),
    ("GET / HTTP/1.1", ""),
]


@pytest.mark.parametrize(("text", "status"), REFUSED)
def test_a_foreign_name_and_a_page_of_another_site_are_refused(text: str, status: str) -> None:
    refused = refusal(text, NAMES)
    assert refused is not None
    assert refused[0].startswith(status)


@pytest.mark.parametrize("host", FOREIGN)
def test_a_foreign_name_is_not_ours(host: str) -> None:
    assert not is_ours(host, NAMES)


class Inner(BaseHTTPRequestHandler):
    """Says what came."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        told = f"{self.headers['Authorization']} {self.headers['Connection']} {body}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)

    def log_message(self, *args: object) -> None: ...


@pytest.fixture
def guarded() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Inner) as inner:
        serving = threading.Thread(target=inner.serve_forever)
        serving.start()
        listener = socket.create_server(("127.0.0.1", 0))
        door = Guard(listener, ("127.0.0.1", inner.server_port), NAMES, "secret")
        port = listener.getsockname()[1]
        door.start()
        yield port
        door.close()
        inner.shutdown()
        serving.join()


def asked(port: int, method: str, body: str = "", **headers: str) -> tuple[int, str]:
    """The status and the body of the guard's answer."""
    asking = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    asking.request(method, "/api/v1/query", body, headers)
    answer = asking.getresponse()
    found = (answer.status, answer.read().decode())
    asking.close()
    return found


def test_a_request_is_passed_on_with_the_guards_own_password(guarded: int) -> None:
    body = "x" * 200_000
    for _ in range(2):
        found = asked(guarded, "POST", body, Authorization="Basic mine", Connection="keep-alive")
        assert found == (200, f"Basic Z3VhcmQ6c2VjcmV0 close {body}")


def test_a_second_request_behind_the_first_is_never_answered(guarded: int) -> None:
    one = f"{head('localhost', 'Content-Length: 2', first='POST / HTTP/1.1')}\r\n\r\nab"
    other = f"{head('evil.example', 'Content-Length: 2', first='POST / HTTP/1.1')}\r\n\r\ncd"
    with socket.create_connection(("127.0.0.1", guarded), 30) as asking:
        asking.sendall((one + other).encode())
        received = b"".join(iter(lambda: asking.recv(65536), b""))
    assert received.count(b"HTTP/1.1 ") == 1
    assert received.endswith(b"close ab")


def test_a_foreign_host_gets_one_line_and_prometheus_no_request(guarded: int) -> None:
    line = "this answers to localhost, its address and its machine's name alone\n"
    assert asked(guarded, "GET", Host="evil.example:9090") == (421, line)


def test_as_a_program_it_ends_with_what_it_guards() -> None:
    """On a node systemd signals the guard, without our packages beside it."""
    code = (
        "import signal, sys; signal.signal(signal.SIGHUP, lambda *_: sys.exit(7)); print('up',"
        " flush=True)"
    )
    code += "\nwhile True: signal.pause()"
    address = f"127.0.0.1:{free_port()}"
    words = [sys.executable, "-E", "-s", "-S", str(Path(guard.__file__)), address, "127.0.0.2:1"]
    with subprocess.Popen(
        [*words, sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGHUP)
        assert process.wait(30) == 7
