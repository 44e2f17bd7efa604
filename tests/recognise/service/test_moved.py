"""A service that ends gives each live session its state, which goes on in another one."""

import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection

from tests.deploy.playing import eventually
from tests.recognise.exports import export
from tests.recognise.readings import walk
from tests.recognise.service.moving import RESTART, Walker
from tests.recognise.service.running import Service, served, service
from tests.recognise.service.streaming import (
    ended,
    event,
    labels,
    library,
    plain,
    send,
    session,
    socket,
)


def moved(connection: ClientConnection) -> dict[str, Any]:
    """The event `moved`, before which nothing comes."""
    found = event(connection)
    assert found["event"] == "moved", found
    assert ended(connection) == ("", RESTART)
    return found


def test_a_session_goes_on_after_the_restart_says_all_and_no_gap(tmp_path: Path) -> None:
    """At 50 Hz in real time, with readings on their way when the service ends; the other service
    has a folder of its own."""
    model = export(tmp_path / "export")
    hello = {"hop": 10, "votes": 2, "of": 3}
    running: list[Service] = []
    walker = Walker(lambda: running, walk(400), **hello)
    thread = threading.Thread(target=walker.run)
    with service(tmp_path / "one", "--model", str(model)) as first:
        running.append(first)
        thread.start()
        eventually(lambda: len(walker.versions) >= 5 or bool(walker.wrong), "five labels")
        first.process.send_signal(signal.SIGTERM)
        assert first.process.wait(10) == 0
        running.clear()
    with service(tmp_path / "two", "--model", str(model)) as second:
        running.append(second)
        thread.join()
    wanted = library(model, walk(400), **hello)
    assert (walker.wrong, walker.moves) == ([], 1)
    assert plain(walker.events) == plain(wanted)
    assert any(one["event"] == "changed" for one in wanted)


def test_readings_that_no_window_needed_yet_and_a_session_without_readings_move_too(
    tmp_path: Path,
) -> None:
    """Who is told to move comes again at once; the old process must not take it once more."""
    with served(tmp_path, make=export) as running:
        with (
            session(running) as (some, _),
            session(running) as (none, _),
            socket(running) as silent,
        ):
            send(some, walk(20))
            running.process.send_signal(signal.SIGTERM)
            found = moved(some)
            assert found["at"] == pytest.approx(19 / 50)
            with pytest.raises(OSError, match="refused"), socket(running):
                pass
            found = moved(none)
            assert found["at"] is None
            assert ended(silent) == ("", RESTART)  # it had said nothing, and has no stream
        assert running.process.wait(10) == 0
    with service(tmp_path) as again, session(again, resume=found["resume"]) as (connection, _):
        send(connection, walk(200))
        assert plain(labels(connection, 2)) == plain(library(tmp_path / "export", walk(200)))
