"""The page's server over real HTTP, with a renderer that counts."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from cluster.pages import server as live
from cluster.pages.drawing import Drawing
from cluster.pages.server import PageServer
from cluster.status.apply import replay
from cluster.status.events import Began, Opened
from cluster.status.parts import NodeTasks
from cluster.status.view import RunView

SECONDS = 20.0


class Counting(Drawing):
    """Draws the elapsed time and counts how often."""

    def __init__(self) -> None:
        self.drawn = 0
        self.problem: Exception | None = None

    def page(self, view: RunView) -> str:
        return f"<!doctype html><title>{view.run}</title>"

    def fragments(self, view: RunView) -> dict[str, str]:
        self.drawn += 1
        if self.problem:
            raise self.problem
        return {"time": f"{view.elapsed_seconds}\n<b>s</b>", "still": "always the same", "state": view.state}


class Run:
    """A run whose time somebody else turns."""

    def __init__(self) -> None:
        nodes = (NodeTasks("here", "127.0.0.1", ("worker:0",)),)
        began = Began("bench", "pi", datetime(2026, 1, 1, tzinfo=UTC), nodes, planned_samples=100)
        self.now = replay([(0.0, began), (0.0, Opened("20260101T000000Z-pi", "pi"))]).view(1.0)

    def view(self) -> RunView:
        return self.now


@contextmanager
def served(run: Run, renderer: Counting, folder: Path) -> Iterator[PageServer]:
    static = folder / "static"
    static.mkdir()
    (static / "page.css").write_text("body {}")
    server = PageServer("127.0.0.1", 0, run.view, renderer, static, names=("rpi11",))
    try:
        yield server
    finally:
        server.close()


@pytest.fixture
def run() -> Run:
    return Run()


@pytest.fixture
def renderer() -> Counting:
    return Counting()


@pytest.fixture
def server(run: Run, renderer: Counting, tmp_path: Path) -> Iterator[PageServer]:
    with served(run, renderer, tmp_path) as running:
        yield running


def address(server: PageServer, path: str = "/") -> str:
    return f"http://127.0.0.1:{server.port}{path}"


def until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < end, "not so in time"
        time.sleep(0.02)


@contextmanager
def watching(server: PageServer) -> Iterator[Iterator[tuple[str, str]]]:
    """The events of one viewer as (name, data)."""
    with httpx.Client(timeout=SECONDS) as client, client.stream("GET", address(server, "/events")) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield events(answer.iter_lines())


def events(lines: Iterator[str]) -> Iterator[tuple[str, str]]:
    name, data = "", []
    for line in lines:
        key, _, value = line.partition(": ")
        if key == "event":
            name = value
        elif key == "data":
            data.append(value)
        elif not line and name:
            yield name, "\n".join(data)
            name, data = "", []


def test_the_page_its_files_and_the_status(server: PageServer, run: Run) -> None:
    page = httpx.get(address(server))
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "20260101T000000Z-pi" in page.text
    assert httpx.get(address(server, "/static/page.css")).text == "body {}"
    status = httpx.get(address(server, "/api/status"))
    assert status.headers["content-type"] == "application/json"
    assert status.json()["schema"] == 1
    assert status.json()["run"] == "20260101T000000Z-pi"
    assert status.json()["pi"] == {"planned_samples": 100, "points": []}
    head = httpx.head(address(server))
    assert head.status_code == 200
    assert head.content == b""


def test_numbers_that_json_has_no_word_for(server: PageServer, run: Run) -> None:
    run.now = replace(run.now, figures={"train": {"loss": float("nan")}})
    text = httpx.get(address(server, "/api/status")).text
    assert json.loads(text, parse_constant=pytest.fail)["figures"] == {"train": {"loss": None}}


@pytest.mark.parametrize("path", ["/", "/static/page.css", "/api/status", "/nothing"])
def test_every_answer_guards_the_browser(server: PageServer, path: str) -> None:
    headers = httpx.get(address(server, path)).headers
    assert headers["content-security-policy"].startswith("default-src 'self';")
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert "access-control-allow-origin" not in headers
    assert "server" not in headers


@pytest.mark.parametrize(
    "path", ["/static/", "/static", "/static/../server.py", "/static/%2e%2e/server.py", "/nothing", "/events/1"]
)
def test_nothing_else_is_there(server: PageServer, path: str) -> None:
    assert httpx.get(address(server, path), follow_redirects=True).status_code == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
@pytest.mark.parametrize("path", ["/", "/events", "/api/status"])
def test_it_can_only_be_looked_at(server: PageServer, method: str, path: str) -> None:
    answer = httpx.request(method, address(server, path))
    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:9203", 200), ("LOCALHOST", 200), ("127.0.0.1:1", 200), ("192.168.1.26", 200), ("[::1]:9203", 200),
        ("rpi11:9203", 200), ("evil.example", 421), ("evil.example:9203", 421), ("127.0.0.1.evil.example", 421),
        ("", 421), ("localhost:9203@evil.example", 421),
    ],
)  # fmt: skip
def test_a_name_that_somebody_pointed_here_is_refused(server: PageServer, host: str, status: int) -> None:
    assert httpx.get(address(server), headers={"Host": host}).status_code == status


def test_a_new_viewer_gets_everything_and_then_what_changes(server: PageServer, run: Run) -> None:
    with watching(server) as seen:
        first = dict(next(seen) for _ in range(3))
        assert first == {"time": "1.0\n<b>s</b>", "still": "always the same", "state": "running"}
        run.now = replace(run.now, elapsed_seconds=2.0)
        assert next(seen) == ("time", "2.0\n<b>s</b>")
        run.now = replace(run.now, state="done")
        assert next(seen) == ("state", "done")


def test_all_viewers_share_one_drawing_and_nothing_is_drawn_for_nobody(
    server: PageServer, run: Run, renderer: Counting
) -> None:
    assert renderer.drawn == 0
    assert not server.watched
    with watching(server) as one, watching(server) as two, watching(server) as three:
        for seen in (one, two, three):
            for _ in range(3):
                next(seen)
        before = renderer.drawn
        run.now = replace(run.now, elapsed_seconds=2.0)
        for seen in (one, two, three):
            assert next(seen)[0] == "time"
        assert renderer.drawn - before <= 3
        assert server.watched
    until(lambda: not server.viewers.count)
    before = renderer.drawn
    drawn_again = threading.Event()
    assert not drawn_again.wait(2 * live.EVERY_SECONDS)
    assert renderer.drawn <= before + 1


def test_who_comes_takes_no_change_from_who_is_there(run: Run, renderer: Counting) -> None:
    async def story() -> dict[str, bytes]:
        everybody = live.Viewers(run.view, renderer)
        first = everybody.enter()
        first.waiting.clear()
        run.now = replace(run.now, elapsed_seconds=2.0)
        everybody._drawn_at = float("-inf")  # a second has passed, and the next drawing is about to begin
        everybody.enter()
        await everybody.close()
        return first.waiting

    assert b"data: 2.0" in asyncio.run(story())["time"]


def test_a_page_that_cannot_be_drawn_ends_nothing(
    server: PageServer, run: Run, renderer: Counting, caplog: pytest.LogCaptureFixture
) -> None:
    with watching(server) as seen:
        for _ in range(3):
            next(seen)
        renderer.problem = KeyError("loss")
        until(lambda: "cannot be drawn: KeyError" in caplog.text)
        renderer.problem, run.now = None, replace(run.now, elapsed_seconds=3.0)
        assert next(seen)[0] == "time"
    assert caplog.text.count("cannot be drawn") == 1


def test_the_end_is_shown_and_said(run: Run, renderer: Counting, tmp_path: Path) -> None:
    with served(run, renderer, tmp_path) as server, watching(server) as seen:
        for _ in range(3):
            next(seen)
        run.now = replace(run.now, state="failed", elapsed_seconds=9.0)
        server.close()
        left = list(seen)
        assert left[-1] == ("closing", '{"state": "failed"}')
        assert ("state", "failed") in left


def test_too_many_viewers_are_told_to_wait(server: PageServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MOST_VIEWERS", 2)
    with watching(server) as one, watching(server) as two:
        next(one), next(two)
        answer = httpx.get(address(server, "/events"))
        assert answer.status_code == 503
        assert "wait" in answer.text
        assert httpx.get(address(server)).status_code == 200


def test_who_takes_nothing_is_let_go_and_hurts_nobody(
    run: Run, renderer: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "STUCK_SECONDS", 1.0)
    monkeypatch.setattr(live, "EVERY_SECONDS", 0.05)
    number = 0

    def large(view: RunView) -> dict[str, str]:
        nonlocal number
        number += 1
        return {"large": f"{number} " + "x" * 3_000_000, "time": str(number)}

    monkeypatch.setattr(renderer, "fragments", large)
    with served(run, renderer, tmp_path) as server, socket.create_connection(("127.0.0.1", server.port)) as stuck:
        stuck.sendall(f"GET /events HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode())
        until(lambda: server.viewers.count == 1)
        with watching(server) as seen:
            while server.viewers.count > 1:
                next(seen)


def test_a_taken_port_raises(server: PageServer, run: Run, renderer: Counting, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="in use"):
        PageServer("127.0.0.1", server.port, run.view, renderer, tmp_path)


def test_it_ends_with_viewers_and_half_requests_open(run: Run, renderer: Counting, tmp_path: Path) -> None:
    with served(run, renderer, tmp_path) as server:
        half = socket.create_connection(("127.0.0.1", server.port))
        half.sendall(b"GET / HTTP/1.1\r\n")
        with half, watching(server) as seen:
            next(seen)
            server.close()
            assert not [thread for thread in threading.enumerate() if thread.name == "page"]
    with socket.create_server(("127.0.0.1", server.port)):
        pass
