"""A service that ends gives each live session its state, and the session goes on in another process."""

import json
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection

from cluster.exported import open_model
from recognise.recogniser import Recogniser, settings_of
from recognise.stream import as_json
from tests.recognise.exports import export
from tests.recognise.readings import Readings, walk
from tests.service.moving import RESTART, Walker
from tests.service.running import Service, service
from tests.service.streaming import ended, event, labels, send, session, socket


def library(model: Path, readings: Readings, **asked: Any) -> list[dict[str, Any]]:
    """What a session that nothing disturbs says."""
    opened = open_model(model)
    recogniser = Recogniser(opened, settings_of(opened.description, **asked))
    found: list[dict[str, Any]] = []
    for start in range(0, len(readings), 1000):
        part = readings.rows(slice(start, start + 1000))
        found += map(as_json, recogniser.push(part.times, part.acceleration, part.rotation))
    return found


def plain(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without what differs from one run to the next."""
    rounded = [{**one, "confidence": round(one["confidence"], 4)} if "confidence" in one else one for one in events]
    return [{key: value for key, value in one.items() if key not in ("latency_ms", "version")} for one in rounded]


def moved(connection: ClientConnection) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The events before `moved`, and that one."""
    before = []
    while (found := event(connection))["event"] != "moved":
        before.append(found)
    assert ended(connection) == ("", RESTART)
    return before, found


def ends(running: Service) -> None:
    running.process.send_signal(signal.SIGTERM)


def test_a_session_goes_on_after_the_restart_of_its_service(tmp_path: Path) -> None:
    """Readings are cut where no window ends, votes are under way, and the other service is another folder's."""
    model = export(tmp_path / "export")
    given = walk(900)
    hello = {"hop": 40, "votes": 2, "of": 3}
    with service(tmp_path / "one", "--model", str(model)) as first, session(first, **hello) as (connection, _):
        send(connection, given.rows(slice(0, 333)))
        before = labels(connection, 6)
        ends(first)
        more, state = moved(connection)
        assert first.process.wait(10) == 0
    assert state["at"] == pytest.approx(332 / 50)
    assert len(state["resume"]) < 10_000
    wanted = library(model, given, **hello)
    with (
        service(tmp_path / "two", "--model", str(model)) as second,
        session(second, **hello, resume=state["resume"]) as (connection, ready),
    ):
        assert ready["version"] == 1
        send(connection, given.rows(slice(333, 900)))
        after = labels(connection, sum(one["event"] == "label" for one in wanted[len(before) + len(more) :]))
    assert plain([*before, *more, *after]) == plain(wanted)
    assert any(one["event"] == "changed" for one in wanted)


def test_readings_that_no_window_needed_yet_and_a_session_without_readings_move_too(tmp_path: Path) -> None:
    with service(tmp_path, "--model", str(export(tmp_path / "export"))) as running:
        with session(running) as (some, _), session(running) as (none, _), socket(running) as (silent):
            send(some, walk(20))
            ends(running)
            assert moved(some)[1]["at"] == pytest.approx(19 / 50)
            found = moved(none)[1]
            assert found["at"] is None
            assert ended(silent) == ("", RESTART)  # it had said nothing, and has no stream
        assert running.process.wait(10) == 0
    with service(tmp_path) as again, session(again, resume=found["resume"]) as (connection, _):
        send(connection, walk(200))
        assert plain(labels(connection, 2)) == plain(library(tmp_path / "export", walk(200)))


@pytest.mark.parametrize(
    ("hello", "words"),
    [
        ({"hop": 32}, "resume: expected a state with hop 32, got 64: begin a new session without it"),
        ({"resume": "?"}, "resume: expected base64, got '?': begin a new session without it"),
        ({"resume": "x" * 400_000}, "resume: String should have at most 349528 characters"),
        ({"resume": 1}, "resume: Input should be a valid string"),
    ],
)
def test_a_state_of_something_else_is_refused_and_the_client_begins_anew(
    tmp_path: Path, hello: dict[str, Any], words: str
) -> None:
    with service(tmp_path, "--model", str(export(tmp_path / "export"))) as running, session(running) as (connection, _):
        ends(running)
        _, state = moved(connection)
    with service(tmp_path) as again:
        with socket(again) as connection:
            connection.send(json.dumps({"schema": 1, "resume": state["resume"], **hello}))
            found, code = ended(connection)
        assert (words in found, code) == (True, 1008), found
        with session(again) as (connection, _):
            send(connection, walk(128))
            assert labels(connection, 1)


def test_a_state_of_another_model_is_refused(tmp_path: Path) -> None:
    model = str(export(tmp_path / "export"))
    with service(tmp_path, "--model", model) as running, session(running) as (connection, _):
        ends(running)
        _, state = moved(connection)
    with service(tmp_path, "--model", model, "--name", "gait") as other, socket(other) as connection:
        connection.send(json.dumps({"schema": 1, "resume": state["resume"]}))
        assert ended(connection) == (
            "resume: expected a state with model gait, got 'har': begin a new session without it", 1008,
        )  # fmt: skip


def test_nobody_gets_in_while_a_service_ends(tmp_path: Path) -> None:
    """Who is told to move comes again at once; the old process must not take it once more."""
    with service(tmp_path, "--model", str(export(tmp_path / "export"))) as running, session(running) as (connection, _):
        ends(running)
        moved(connection)
        with pytest.raises(OSError, match="refused"), socket(running):
            pass


def test_a_session_under_way_says_all_and_no_gap(tmp_path: Path) -> None:
    """At 50 Hz in real time, with readings on their way when the service ends."""
    model = export(tmp_path / "export")
    hello = {"hop": 10, "votes": 2, "of": 3}
    running: list[Service] = []
    walker = Walker(lambda: tuple(running), walk(400), **hello)
    thread = threading.Thread(target=walker.walk)
    with service(tmp_path, "--model", str(model)) as first:
        running.append(first)
        thread.start()
        while len(walker.labels) < 5 and not walker.wrong:
            walker.stop.wait(0.02)
        ends(first)
        first.process.wait(10)
        running.clear()
    with service(tmp_path) as second:
        running.append(second)
        thread.join()
    assert (walker.wrong, walker.moves, len(walker.readies)) == ([], 1, 2)
    assert plain(walker.events) == plain(library(model, walk(400), **hello))
