"""The page's server over real HTTP, with a renderer that counts."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from cluster.pages import server as live
from cluster.pages.drawing import Drawing
from cluster.pages.server import PageServer
from core.status.apply import replay
from core.status.events import Began, Opened
from core.status.parts import NodeTasks
from core.status.view import RunView
from tests.deploy.playing import eventually
from tests.tables import table

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
        return {
            "time": f"{view.elapsed_seconds}\n<b>s</b>",
            "still": "always the same",
            "state": view.state,
        }


class Run:
    """A run whose time somebody else turns."""

    def __init__(self) -> None:
        nodes = (NodeTasks("here", "127.0.0.1", ("worker:0",)),)
        began = Began("bench", "pi", datetime(2026, 1, 1, tzinfo=UTC), nodes, planned_samples=100)
        self.now = replay([(0.0, began), (0.0, Opened("20260101T000000Z-pi", "pi"))]).view(1.0)

    def view(self) -> RunView:
        return self.now

    def change(self, **changes: Any) -> None:
        self.now = replace(self.now, **changes)


class Served(PageServer):
    """A server of such a run, drawn so, with its static files in that folder."""

    def __init__(self, folder: Path) -> None:
        (folder / "page.css").write_text("body {}")
        self.run = Run()
        self.drawing = Counting()
        super().__init__("127.0.0.1", 0, self.run.view, self.drawing, folder, names=("rpi11",))

    def get(self, path: str = "/", method: str = "GET", **options: Any) -> httpx.Response:
        return httpx.request(method, f"http://127.0.0.1:{self.port}{path}", **options)

    @contextmanager
    def watched_by_one(self, events: int = 0) -> Iterator[Iterator[tuple[str, str]]]:
        """The events of one viewer as (name, data), behind so many."""
        address = f"http://127.0.0.1:{self.port}/events"
        with httpx.Client(timeout=SECONDS) as client, client.stream("GET", address) as answer:
            assert answer.status_code == 200
            assert answer.headers["content-type"].startswith("text/event-stream")
            seen = events_of(answer.iter_lines())
            for _ in range(events):
                next(seen)
            yield seen


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    running = Served(tmp_path)
    try:
        yield running
    finally:
        running.close()


def events_of(lines: Iterator[str]) -> Iterator[tuple[str, str]]:
    name = ""
    data = []
    for line in lines:
        key, _, value = line.partition(": ")
        if key == "event":
            name = value
        elif key == "data":
            data.append(value)
        elif not line and name:
            yield name, "\n".join(data)
            name = ""
            data = []


def test_the_page_its_files_and_the_status(server: Served) -> None:
    page = server.get()
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "20260101T000000Z-pi" in page.text
    assert server.get("/static/page.css").text == "body {}"
    status = server.get("/api/status")
    assert status.headers["content-type"] == "application/json"
    expected = {
        "schema": 1,
        "run": "20260101T000000Z-pi",
        "pi": {"planned_samples": 100, "points": []},
    }
    assert expected.items() <= status.json().items()
    head = server.get(method="HEAD")
    assert (head.status_code, head.content) == (200, b"")


def test_numbers_that_json_has_no_word_for(server: Served) -> None:
    server.run.change(figures={"train": {"loss": float("nan")}})
    text = server.get("/api/status").text
    assert json.loads(text, parse_constant=pytest.fail)["figures"] == {"train": {"loss": None}}


@pytest.mark.parametrize("path", ["/", "/static/page.css", "/api/status", "/nothing"])
def test_every_answer_guards_the_browser(server: Served, path: str) -> None:
    headers = server.get(path).headers
    assert headers["content-security-policy"].startswith("default-src 'self';")
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert not {"access-control-allow-origin", "server"} & set(headers)


def test_nothing_else_is_there(server: Served) -> None:
    for path in table("cluster/pages/rows", "nothing there"):
        assert server.get(path, follow_redirects=True).status_code == 404, path


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_it_can_only_be_looked_at(server: Served, method: str) -> None:
    for path in ("/", "/events", "/api/status"):
        answer = server.get(path, method)
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD"), path


def test_a_name_that_somebody_pointed_here_and_another_site_are_refused(server: Served) -> None:
    own, others = table("cluster/pages/rows", "hosts")
    statuses = {host: server.get(headers={"Host": host}).status_code for host in own + others}
    assert statuses == {**dict.fromkeys(own, 200), **dict.fromkeys(others, 421)}
    foreign = {"Sec-Fetch-Site": "cross-site"}
    assert server.get("/events", headers=foreign).status_code == 403
    assert server.get(headers=foreign | {"Sec-Fetch-Mode": "navigate"}).status_code == 200


def test_a_new_viewer_gets_everything_and_then_what_changes(server: Served) -> None:
    with server.watched_by_one() as seen:
        first = dict(next(seen) for _ in range(3))
        assert first == {"time": "1.0\n<b>s</b>", "still": "always the same", "state": "running"}
        server.run.change(elapsed_seconds=2.0)
        assert next(seen) == ("time", "2.0\n<b>s</b>")
        server.run.change(state="done")
        assert next(seen) == ("state", "done")


def test_all_viewers_share_one_drawing_and_nothing_is_drawn_for_nobody(server: Served) -> None:
    drawing = server.drawing
    assert (drawing.drawn, server.watched) == (0, False)
    with ExitStack() as stack:
        all_seen = [stack.enter_context(server.watched_by_one(3)) for _ in range(3)]
        before = drawing.drawn
        server.run.change(elapsed_seconds=2.0)
        assert [next(seen)[0] for seen in all_seen] == ["time"] * 3
        assert drawing.drawn - before <= 3
        assert server.watched
    eventually(lambda: not server.viewers.count, "the end of all viewers")
    before = drawing.drawn
    assert not threading.Event().wait(2 * live.EVERY_SECONDS)
    assert drawing.drawn <= before + 1


def test_a_page_that_cannot_be_drawn_ends_nothing(
    server: Served, caplog: pytest.LogCaptureFixture
) -> None:
    with server.watched_by_one(3) as seen:
        server.drawing.problem = KeyError("loss")
        eventually(lambda: "cannot be drawn: KeyError" in caplog.text, "the warning")
        server.drawing.problem = None
        server.run.change(elapsed_seconds=3.0)
        assert next(seen)[0] == "time"
    assert caplog.text.count("cannot be drawn") == 1


def test_the_end_is_shown_and_said(server: Served) -> None:
    with server.watched_by_one(3) as seen:
        server.run.change(state="failed", elapsed_seconds=9.0)
        server.close()
        left = list(seen)
    assert left[-1] == ("closing", '{"state": "failed"}')
    assert ("state", "failed") in left


def test_too_many_viewers_are_told_to_wait(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MOST_VIEWERS", 2)
    with server.watched_by_one(1), server.watched_by_one(1):
        answer = server.get("/events")
        assert answer.status_code == 503
        assert "wait" in answer.text
        assert server.get().status_code == 200


def test_who_takes_nothing_is_let_go_and_hurts_nobody(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "STUCK_SECONDS", 1.0)
    monkeypatch.setattr(live, "EVERY_SECONDS", 0.05)
    numbers = count()
    large = "x" * 3_000_000
    monkeypatch.setattr(
        server.drawing, "fragments", lambda _: {"large": f"{next(numbers)} {large}"}
    )
    with socket.create_connection(("127.0.0.1", server.port)) as stuck:
        stuck.sendall(f"GET /events HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode())
        eventually(lambda: server.viewers.count == 1, "the first viewer")
        with server.watched_by_one() as events:
            drawings = [next(events)]
            while server.viewers.count > 1:
                drawings.append(next(events))
            drawings.append(next(events))
            assert server.viewers.count == 1, "the one that takes them stays"
    numbers_sent = [int(data.partition(" ")[0]) for _, data in drawings]
    assert numbers_sent == sorted(set(numbers_sent)), "and gets each drawing once, in order"


def test_a_taken_port_raises(server: Served, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="in use"):
        PageServer("127.0.0.1", server.port, Run().view, Counting(), tmp_path)


def test_it_ends_with_viewers_and_half_requests_open(server: Served) -> None:
    half = socket.create_connection(("127.0.0.1", server.port))
    half.sendall(b"GET / HTTP/1.1\r\n")
    with half, server.watched_by_one(1):
        server.close()
        assert not [thread for thread in threading.enumerate() if thread.name == "page"]
    with socket.create_server(("127.0.0.1", server.port)):
        pass
