"""The one client against servers that flood, trickle, redirect, talk without end, or hang up."""

import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

import pytest

from cluster.jobs.roles import MOST_LINES, role_metrics
from core.control import role_restart
from core.control.client import MOST_BODY_BYTES, Answer, NoAnswerError, ask
from core.control.requests import Reply, Request
from core.control.role_restart import RestartPatience, restart_roles
from core.control.server import PROCESS_HEADER, Server
from core.ground.errors import ClusterError
from tests.core.server.processes import HANG_SECONDS
from tests.tables import table

Play = Callable[[socket.socket, threading.Event], None]


@contextmanager
def playing(play: Play) -> Iterator[int]:
    """A port whose every connection is played so, until the end."""
    end = threading.Event()

    class Playing(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.settimeout(HANG_SECONDS)
            with suppress(OSError):
                play(self.request, end)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Playing) as server:
        accepting = threading.Thread(target=server.serve_forever, args=(0.01,))
        accepting.start()
        try:
            yield server.server_address[1]
        finally:
            end.set()
            server.shutdown()
            accepting.join()


def endless(beginning: bytes, again: bytes, pause_seconds: float = 0.0) -> Play:
    """Sends its beginning, and then the same until the end."""

    def play(connection: socket.socket, end: threading.Event) -> None:
        connection.sendall(beginning)
        while not end.wait(pause_seconds):
            connection.sendall(again)

    return play


OK = b"HTTP/1.0 200 OK\r\n"
FLOOD = endless(OK + b"\r\n", b"x 1\n" * 16_384)
ENDLESS_HEADERS = endless(OK, b"a: b\r\n" * 1000)
SLOW = [
    endless(b"", b"", HANG_SECONDS),
    endless(OK + b"Content-Length: 100000\r\n\r\n", b"#", 0.02),
    endless(OK, b"a: b\r\n", 0.02),
]


def saying(words: bytes) -> Play:
    def say(connection: socket.socket, _end: threading.Event) -> None:
        connection.recv(65_536)
        connection.sendall(words)

    return say


@pytest.mark.parametrize(
    ("play", "words"),
    [
        (FLOOD, f"at most {MOST_BODY_BYTES} bytes"),
        (ENDLESS_HEADERS, "headers of at most 16384 bytes"),
        (saying(OK + b"a: b\r\n" * 101 + b"\r\n"), "more than 100 headers"),
        *(
            (saying(answer.encode()), words)
            for answer, words in table("core/control/tables", "no answers")
        ),
    ],
)
def test_what_is_no_bounded_answer_is_one_error(play: Play, words: str) -> None:
    with playing(play) as port, pytest.raises(NoAnswerError, match=words) as caught:
        ask(f"127.0.0.1:{port}", "GET", "/metrics", deadline_seconds=HANG_SECONDS)
    assert str(caught.value).startswith(f"GET http://127.0.0.1:{port}/metrics: ")
    assert not caught.value.refused


@pytest.mark.parametrize("play", SLOW)
def test_the_deadline_is_that_of_the_whole_answer(play: Play) -> None:
    # None of them ends by itself.
    with (
        playing(play) as port,
        pytest.raises(NoAnswerError, match=r"the whole answer within 0\.4 s"),
    ):
        ask(f"127.0.0.1:{port}", "GET", "/metrics", deadline_seconds=0.4)


def test_no_redirect_is_followed_and_no_proxy_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    reached: list[str] = []

    def reach(connection: socket.socket, _end: threading.Event) -> None:
        reached.append("there")

    with playing(reach) as elsewhere:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{elsewhere}")
        there = (
            f"HTTP/1.0 302 Found\r\nLocation: http://127.0.0.1:{elsewhere}/\r\nContent-Length:"
            " 0\r\n\r\n"
        )
        with playing(saying(there.encode())) as port:
            assert ask(f"127.0.0.1:{port}", "GET", "/", deadline_seconds=HANG_SECONDS).status == 302
            with pytest.raises(ClusterError, match="got status 302"):
                role_metrics(f"127.0.0.1:{port}")
    assert reached == []


def test_an_answer_comes_with_its_status_and_headers() -> None:
    def route(request: Request) -> Reply:
        return Reply.words(503, f"{request.method} {request.target}")

    with closing(Server("127.0.0.1", 0, route, "a test")) as server:
        answer = ask(f"127.0.0.1:{server.port}", "POST", "/x?y=1", deadline_seconds=HANG_SECONDS)
    assert (answer.status, answer.text) == (503, "POST /x?y=1\n")
    assert answer.headers[PROCESS_HEADER.lower()]


@pytest.mark.parametrize(
    ("address", "path", "words", "refused"),
    [
        ("127.0.0.1:1", "/", "refused", True),
        ("127.0.0.1:1", "/x HTTP/1.0\r\nHost: y", "without spaces", False),
        ("pi.example:80", "/", "GET http://pi.example:80/: ", False),
    ],
)
def test_nobody_there_and_a_name_are_errors_at_once(
    address: str, path: str, words: str, refused: bool
) -> None:
    with pytest.raises(NoAnswerError, match=words) as caught:
        ask(address, "GET", path, deadline_seconds=HANG_SECONDS)
    assert caught.value.refused == refused


def test_a_role_that_names_a_metric_without_end_is_one_error() -> None:
    lines = b"pscluster_ready 1\n" * (MOST_LINES + 1)
    with (
        playing(saying(OK + b"\r\n" + lines)) as port,
        pytest.raises(ClusterError, match=f"{MOST_LINES + 1} lines, more than {MOST_LINES}"),
    ):
        role_metrics(f"127.0.0.1:{port}", ("pscluster_ready",))


@pytest.mark.parametrize("play", [SLOW[0], SLOW[2]])
def test_roles_that_hold_their_asker_up_are_given_up_at_one_end_for_all(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[float] = []

    def observed(*words: str, deadline_seconds: float, most_bytes: int, key: str | None) -> Answer:
        left.append(deadline_seconds)
        return ask(*words, deadline_seconds=deadline_seconds, most_bytes=most_bytes, key=key)

    monkeypatch.setattr(role_restart, "ask", observed)
    with playing(play) as port:
        names = ["ps:0", *(f"worker:{index}" for index in range(40))]
        roles = dict.fromkeys(names, f"127.0.0.1:{port}")
        with pytest.raises(ClusterError, match="are not ready after"):
            restart_roles(
                roles, print, RestartPatience(deadline_seconds=1.0, silent_worker_seconds=0.2)
            )
    waited = [seconds for seconds in left if seconds > 0.0]
    assert max(waited) <= 1.0
    assert len(waited) <= role_restart._MOST_AT_ONCE, "the next ones come when the time is up"
