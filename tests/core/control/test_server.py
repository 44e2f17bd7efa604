"""The one server against connections that say nothing, too little, too much, or read nothing."""

import logging
import resource
import socket
import threading
from contextlib import closing

import pytest

from core.control import server
from core.control.actions import READERS, Actions, Routes
from core.control.client import NoAnswerError, ask
from core.control.door import RateLimitedLog, share_of
from core.control.requests import Reply, Request
from core.control.server import Server
from tests.core.control.crowd import crowd
from tests.core.server.processes import HANG_SECONDS, asked, python
from tests.deploy.playing import eventually
from tests.tables import table

SHORT_OF_DESCRIPTORS = """
import logging, resource, sys, time
from core.control.client import NoAnswerError, ask
from core.control.requests import Reply
from core.control.server import Server
from tests.core.control.crowd import crowd

logging.basicConfig(stream=sys.stderr, format="%(levelname)s %(message)s")
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
serving = Server("127.0.0.1", 0, lambda request: Reply.words(200, "here"), "a test")
def answered():
    for _ in range(100):  # the crowd pushes out one of eight that is yet to ask
        try:
            return ask(f"127.0.0.1:{serving.port}", "GET", "/", deadline_seconds=100).text
        except NoAnswerError:
            time.sleep(0.1)

with crowd(serving.port, 1000):
    for _ in range(20):
        assert answered() == "here\\n"
    taken = []  # and now there is not one descriptor left
    try:
        while True:
            taken.append(open("/dev/null"))
    except OSError:
        pass
    time.sleep(3)
    for one in taken:
        one.close()
    assert answered() == "here\\n"
serving.close()
print("answered")
"""


LONG = b"GET /long HTTP/1.0\r\n\r\n"


def here(request: Request) -> Reply:
    return Reply.words(200, "here")


def serving(route: server.Route = here, most: int = server.MOST_CONNECTIONS) -> closing[Server]:
    return closing(Server("127.0.0.1", 0, route, "a test", most))


def get(running: Server) -> str:
    return ask(f"127.0.0.1:{running.port}", "GET", "/", deadline_seconds=HANG_SECONDS).text


def connected(running: Server, words: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", running.port), HANG_SECONDS)
    connection.sendall(words)
    return connection


def ended(connection: socket.socket) -> bytes:
    """What comes until the other side closes."""
    received = b""
    try:
        while got := connection.recv(65_536):
            received += got
    except ConnectionResetError:
        pass
    return received


@pytest.mark.parametrize("trickles", [False, True])
def test_a_crowd_that_asks_nothing_keeps_nobody_out(trickles: bool) -> None:
    with serving() as running:
        before = threading.active_count()
        with crowd(running.port, 1300, trickles):
            for _ in range(50):
                assert get(running) == "here\n"
                assert threading.active_count() <= before + 2 * server.MOST_CONNECTIONS
        eventually(lambda: threading.active_count() == before, "their threads to end")


def test_without_descriptors_it_waits_says_so_once_and_goes_on() -> None:
    done = python("-c", SHORT_OF_DESCRIPTORS)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "answered\n"
    lines = done.stderr.splitlines()
    assert sum("no descriptors left" in line for line in lines) == 1, done.stderr
    assert sum("connections at once" in line for line in lines) == 1, done.stderr
    assert len(lines) == 2, done.stderr


@pytest.mark.parametrize(
    "words",
    [b"", b"GET / HTTP/1.1\r\nHost: x\r\n", b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nx"],
)
def test_a_request_has_a_deadline_as_a_whole(words: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REQUEST_SECONDS", 0.3)
    with serving() as running, connected(running, words) as connection:
        stop = threading.Event()

        def keep_sending() -> None:
            try:
                while not stop.wait(0.05):
                    connection.send(b"x")
            except OSError:
                pass

        sending = threading.Thread(target=keep_sending)
        sending.start()
        try:
            assert ended(connection) == b""
        finally:
            stop.set()
            sending.join()


def test_who_does_not_read_the_answer_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "ANSWER_SECONDS", 0.3)
    told = threading.Event()
    long_one = Reply(200, b"x" * 50_000_000, then=told.set)
    with serving(
        lambda request: long_one if request.target == "/long" else here(request)
    ) as running:
        with connected(running, LONG) as connection:
            get(running)
            assert not threading.Event().wait(1.0)
            assert len(ended(connection)) < 50_000_000
        assert not told.is_set()


@pytest.mark.parametrize(
    ("words", "status"),
    [
        *table("core/control/tables", "no requests"),
        ("GET / HTTP/1.1\r\n" + "a: b\r\n" * 4000, 431),
        ("GET / HTTP/1.1\r\n" + "a: b\r\n" * 101 + "\r\n", 431),
        ("GET /" + "x" * 20_000, 431),
    ],
)
def test_what_is_too_much_or_no_request_is_refused(words: str, status: int) -> None:
    with serving() as running:
        with connected(running, words.encode()) as connection:
            assert ended(connection).startswith(f"HTTP/1.0 {status} ".encode())
        assert get(running) == "here\n"


def test_work_that_takes_long_holds_up_nobody_and_is_bounded() -> None:
    go = threading.Event()
    free = threading.Semaphore(READERS)
    noted: list[str] = []

    def compute(request: Request) -> Reply:
        assert free.acquire(blocking=False), "more at once than may read"
        go.wait(HANG_SECONDS)
        free.release()
        return Reply.words(200, "done")

    with serving(Routes({"/long": compute}, Actions(begin_run=noted.append))) as running:
        many = [connected(running, LONG) for _ in range(3 * READERS)]
        address = f"127.0.0.1:{running.port}"
        assert ask(address, "POST", "/run/2026", deadline_seconds=HANG_SECONDS).text == "noted\n"
        go.set()
        for connection in many:
            with connection:
                assert ended(connection).endswith(b"done\n")


def test_over_the_limit_it_is_the_oldest_one_without_a_request_that_goes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with serving(most=8) as running:
        silent = [connected(running) for _ in range(8)]
        assert get(running) == "here\n"
        assert ended(silent[0]) == b""
        silent[1].sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert ended(silent[1]).endswith(b"here\n")
        for _ in range(30):
            silent.append(connected(running))
        assert get(running) == "here\n"
        for connection in silent:
            connection.close()
    lines = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(lines) == 1
    assert "a test: more than 8 connections at once" in lines[0]


def test_when_all_are_at_work_a_new_one_is_closed_at_once() -> None:
    go = threading.Event()

    working = threading.Semaphore(0)

    def wait(request: Request) -> Reply:
        working.release()
        return Reply.words(200, str(go.wait(HANG_SECONDS)))

    with serving(wait, most=4) as running:
        many = [connected(running, b"GET / HTTP/1.0\r\n\r\n") for _ in range(4)]
        for _ in many:
            assert working.acquire(timeout=HANG_SECONDS)
        with pytest.raises(NoAnswerError):
            get(running)
        go.set()
        for connection in many:
            with connection:
                assert ended(connection).endswith(b"True\n")


def test_an_answer_that_fails_is_500_and_the_next_one_is_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(request: Request) -> Reply:
        if request.target == "/":
            return here(request)
        raise KeyError(request.target)

    with serving(broken) as running:
        for _ in range(2):
            assert asked(running.port, "/broken").status == 500
            assert get(running) == "here\n"
    assert caplog.text.count("the answer to 127.0.0.1 failed") == 2


def test_a_server_takes_a_share_of_few_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = {65_536: 128, 1024: 128, 256: 32, 64: 8, 16: 4, resource.RLIM_INFINITY: 128}
    for soft, expected in shares.items():
        monkeypatch.setattr(resource, "getrlimit", lambda _, soft=soft: (soft, soft))
        assert share_of(128) == expected


def test_a_line_that_anybody_can_cause_is_written_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [0.0]
    said = RateLimitedLog(logging.getLogger("a test"), clock=lambda: now[0])
    for _ in range(1000):
        said.say("again")
    now[0] = 61.0
    said.say("again")
    assert [record.message for record in caplog.records] == [
        "again",
        "again (and 999 such lines that were not written)",
    ]
