"""`WS /v1/stream`: real services, and the client of `websockets`."""

import json
from typing import Any

import numpy as np
import pytest
from websockets.exceptions import InvalidStatus

from core.data.filters import causal_channels
from recognise.stream import Settings, begun, text_of
from tests.recognise.exports import LABELS, export
from tests.recognise.readings import walk
from tests.recognise.service.running import PATH, Service, as_json
from tests.recognise.service.streaming import (
    ended,
    event,
    labels,
    library,
    message,
    plain,
    send,
    session,
    socket,
)
from tests.tables import table

EXPORT = export
READY = {
    "event": "ready",
    "model": "har",
    "version": 1,
    "labels": ["STILL", "MOVING"],
    "sampling_hz": 50.0,
    "window_steps": 128,
    "filters": "causal",
    "channels": ["acc_x", "acc_y", "acc_z", "gyro_x", "gyro_y", "gyro_z"],
    "units": ["g", "g", "g", "rad/s", "rad/s", "rad/s"],
    "hop": 64,
    "votes": 2,
    "of": 3,
}
OTHER_UNITS = {"acceleration_unit": "m/s2", "rotation_unit": "deg/s"}


@pytest.mark.parametrize(
    ("asked", "units"),
    [({}, {}), ({"hop": 32, "votes": 1, "of": 1}, OTHER_UNITS)],
    ids=["as the model has it", "as the first message says"],
)
def test_a_session_says_what_the_library_says(
    running: Service, asked: dict[str, Any], units: dict[str, str]
) -> None:
    """Messages of readings get the events that `Recogniser` gives for these readings."""
    given = walk(900)
    wanted = library(
        running.folder / "models/har/versions/1", given, **{"votes": 2, "of": 3, **asked}
    )
    with session(running, **asked, **units) as (connection, ready):
        assert ready == {**READY, **asked}
        if units:
            given = given.scaled("acceleration", 9.80665).scaled("rotation", 180 / np.pi)
        send(connection, given)
        found = labels(connection, sum(one["event"] == "label" for one in wanted))
    of_labels = [one for one in found if one["event"] == "label"]
    assert {one["version"] for one in of_labels} == {1}
    assert all(0 < one["latency_ms"] < 30_000 for one in of_labels)
    assert plain(found) == plain(wanted)
    assert any(one["event"] == "changed" for one in found)


def test_a_fault_is_an_event_and_a_null_is_a_value_that_is_missing(running: Service) -> None:
    with session(running) as (connection, _):
        connection.send(
            '{"times": [0.0, 0.02, 0.04], "acceleration": [[0,0,1],[0,null,1],[0,0,1]], '
            '"rotation": [[0,0,0],[0,0,0],[0,0,0]]}'
        )
        assert event(connection)["kind"] == "bad_value"
        connection.send('{"times": [9.0], "acceleration": [[0,0,1]], "rotation": [[0,0,0]]}')
        found = event(connection)
        assert (found["event"], found["kind"], found["at"]) == ("fault", "gap", 0.04)


def state_of_hop(hop: int) -> str | None:
    return text_of(begun(Settings(hop=hop), LABELS), "har", LABELS)


RESUMED = json.dumps({"schema": 1, "resume": state_of_hop(32)})
LONG = json.dumps({"schema": 1, "resume": "x" * 400_000})
MANY = '{"times": [' + "0," * 4999 + '0], "acceleration": []}'


@pytest.mark.parametrize(
    ("words", "text"),
    [
        *table("recognise/service/streams", "first"),
        ("resume: String should have at most 349528 characters", LONG),
        ("resume: expected a state with hop 64, got 32", RESUMED),
    ],
)
def test_a_wrong_first_message_gets_the_reason(
    running: Service, words: str, text: str | bytes
) -> None:
    with socket(running) as connection:
        connection.send(text)
        found, code = ended(connection)
        assert (words in found, code) == (True, 1008), found


@pytest.mark.parametrize(
    ("words", "text", "code"),
    [
        *((words, text, 1008) for words, text in table("recognise/service/streams", "later")),
        ("at most 4096 items", MANY, 1008),
        ("Invalid JSON: recursion limit exceeded", "[" * 100_000, 1008),
        ("", "x" * (1 << 20) + "y", 1009),
        ("", ["x" * (1 << 19), "x" * (1 << 19), "x"], 1009),
        # Refused before it is parsed.
        ("expected at most 4096 readings in a message", "[" + "0," * 40_000 + "0]", 1009),
    ],
)
def test_wrong_readings_get_the_reason(
    running: Service, words: str, text: str | list[str], code: int
) -> None:
    with session(running) as (connection, _):
        connection.send(text)
        said, found = ended(connection)
        # What uvicorn refuses comes alone.
        assert (bool(said), words in said, found) == (bool(words), True, code), said


def test_the_token_may_be_in_the_first_message(running: Service) -> None:
    own_page = {"Origin": f"http://{running.address}", "Sec-Fetch-Site": "same-origin"}
    for headers in ({}, own_page):
        with socket(running, headers=headers) as connection:
            connection.send(json.dumps({"schema": 1, "token": running.token}))
            assert event(connection)["event"] == "ready"
    for wrong in ({}, {"token": "x" * 40}):
        with socket(running, headers={}) as connection:
            connection.send(json.dumps({"schema": 1, **wrong}))
            expected = "expected token in the first message: the token that `fab serve` names"
            assert ended(connection) == (expected, 1008)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": "Bearer no"}, 401),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
def test_the_handshake_is_guarded(running: Service, headers: dict[str, str], status: int) -> None:
    with (
        pytest.raises(InvalidStatus) as refused,
        socket(running, headers={**running.headers, **headers}),
    ):
        pass
    response = refused.value.response
    assert response.status_code == status
    assert json.loads(response.body)["error"].startswith(("expected ", "this is not for "))


def test_other_paths_have_no_websocket(running: Service) -> None:
    with pytest.raises(InvalidStatus, match="404"), socket(running, path="/v2"):
        pass
    upgrade = {"Connection": "upgrade", "Upgrade": "websocket"}
    with running.client() as client:
        answer = client.get("/v1/stream")
        assert (answer.status_code, answer.headers["upgrade"]) == (426, "websocket")
        assert answer.json()["error"].startswith("expected a WebSocket to /v1/stream, got ")
        answer = client.get("/v1/stream", headers=upgrade)
        assert answer.status_code == 400
        assert "missing Sec-WebSocket-Key" in answer.text


def test_readings_beyond_the_rate_are_refused(running: Service) -> None:
    """However slow the machine is: it sends on until it is refused.

    It waits for the label of each message: a client of `websockets` that only sends holds the lock
    that its thread for reading needs, and may lose the last events.
    """
    with session(running, hop=4096) as (connection, _):
        too_many = message(walk(4096))
        heard = {"event": "label"}
        while heard["event"] != "refused":
            if heard["event"] == "label":
                connection.send(too_many)
            heard = event(connection)
    assert heard["error"] == "too fast: expected at most 500 readings a second, 16384 at once"


def test_windows_of_another_unit_get_no_label(running: Service) -> None:
    given = walk(200)
    windows = np.stack([causal_channels(given.acceleration, given.rotation)[:128]] * 2)
    with running.client() as client:
        assert client.post(f"{PATH}/infer", json=as_json(windows)).status_code == 200
        windows[1, :, 6:] *= 9.80665
        answer = client.post(f"{PATH}/infer", json=as_json(windows))
    assert answer.status_code == 400
    assert "window 1: mean acceleration 10 g" in answer.json()["error"]
