"""`WS /v1/stream`: real services, and the client of `websockets`."""

import json

import numpy as np
import pytest
from websockets.exceptions import InvalidStatus

from cluster.exported import open_model
from recognise.recogniser import Recogniser, settings_of
from recognise.stream import as_json
from tests.recognise.exports import export
from tests.recognise.readings import walk
from tests.service.raw import exchange, head
from tests.service.running import Service, service
from tests.service.streaming import ended, event, labels, message, send, session, socket

SAID = ("latency_ms", "version")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    folder = tmp_path_factory.mktemp("streams")
    with service(folder, "--model", str(export(folder / "export"))) as found:
        yield found


def test_a_session_says_what_the_library_says(running: Service) -> None:
    """The same readings, in messages, give the events of `Recogniser`."""
    given = walk(900)
    model = open_model(running.folder / "models" / "har" / "versions" / "1")
    expected = Recogniser(model, settings_of(model.description, votes=2, of=3)).push(
        given.times, given.acceleration, given.rotation
    )
    with session(running) as (connection, ready):
        assert ready == {
            "event": "ready", "model": "har", "version": 1, "labels": ["STILL", "MOVING"], "sampling_hz": 50.0,
            "window_steps": 128, "filters": "causal", "hop": 64, "votes": 2, "of": 3,
        }  # fmt: skip
        send(connection, given)
        found = labels(connection, 13)
    assert {one["version"] for one in found if one["event"] == "label"} == {1}
    assert all(0 < one["latency_ms"] < 30_000 for one in found if one["event"] == "label")
    plain = [{key: value for key, value in one.items() if key not in SAID} for one in found]
    wanted = [as_json(one) for one in expected]
    for one in (*plain, *wanted):
        if "confidence" in one:
            one["confidence"] = round(one["confidence"], 4)
    assert plain == wanted
    assert any(one["event"] == "changed" for one in plain)


def test_units_are_those_of_the_first_message(running: Service) -> None:
    given = walk(400)
    with session(running, acceleration_unit="m/s2", rotation_unit="deg/s", hop=32, votes=1, of=1) as (
        connection,
        ready,
    ):
        assert (ready["hop"], ready["votes"], ready["of"]) == (32, 1, 1)
        content = json.loads(message(given))
        content["acceleration"] = (given.acceleration * 9.80665).tolist()
        content["rotation"] = np.degrees(given.rotation).tolist()
        connection.send(json.dumps(content))
        assert [one["label"] for one in labels(connection, 9) if one["event"] == "label"] == ["MOVING"] * 9


def test_a_fault_is_an_event_and_a_null_is_a_value_that_is_missing(running: Service) -> None:
    with session(running) as (connection, _):
        connection.send('{"times": [0.0, 0.02, 0.04], "acceleration": [[0,0,1],[0,null,1],[0,0,1]], '
                        '"rotation": [[0,0,0],[0,0,0],[0,0,0]]}')  # fmt: skip
        assert event(connection)["kind"] == "bad_value"
        connection.send('{"times": [9.0], "acceleration": [[0,0,1]], "rotation": [[0,0,0]]}')
        found = event(connection)
        assert (found["event"], found["kind"], found["at"]) == ("fault", "gap", 0.04)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", 'expected {"schema": 1, ...} as the first message: Invalid JSON'),
        ("[]", 'expected {"schema": 1, ...} as the first message'),
        ('{"schema": 2}', "schema: Input should be 1"),
        ('{"schema": 1, "hop": 1}', "hop: expected 5 samples or more, got 1"),
        ('{"schema": 1, "votes": 1, "of": 3}', "votes: expected more than half"),
        ('{"schema": 1, "acceleration_unit": "stone"}', "acceleration_unit: expected g or m/s2, got 'stone'"),
        ('{"schema": 1, "more": 1}', "more: Extra inputs are not permitted"),
        (b"\x00", "expected text, got a binary message"),
    ],
)
def test_a_wrong_first_message_gets_the_reason(running: Service, text: str | bytes, words: str) -> None:
    with socket(running) as connection:
        connection.send(text)
        found, code = ended(connection)
    assert (words in found, code) == (True, 1008), found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"times": []}', "times: List should have at least 1 item"),
        ('{"times": [1], "acceleration": [[1,2]], "rotation": [[1,2,3]]}', "acceleration.0.2: Field required"),
        ('{"times": [1], "acceleration": [[1,2,"3"]], "rotation": [[1,2,3]]}', "acceleration.0.2: "),
        (
            '{"times": [1, 2], "acceleration": [[1,2,3]], "rotation": [[1,2,3]]}',
            "as many times as acceleration and rotation, got 2, 1 and 1",
        ),
        (json.dumps({"times": [0] * 5000, "acceleration": [], "rotation": []}), "at most 4096 items"),
        ("[" * 100_000, "expected readings (times, acceleration, rotation): Invalid JSON: recursion limit exceeded"),
    ],
)
def test_wrong_readings_get_the_reason(running: Service, text: str, words: str) -> None:
    with session(running) as (connection, _):
        connection.send(text)
        found, code = ended(connection)
    assert (words in found, code) == (True, 1008), found


@pytest.mark.parametrize("text", ["x" * (1 << 20) + "y", ["x" * (1 << 19), "x" * (1 << 19), "x"]])
def test_a_message_beyond_a_mebibyte_is_refused(running: Service, text: str | list[str]) -> None:
    with session(running) as (connection, _):
        connection.send(text)
        assert ended(connection) == ("expected a message of at most 1048576 bytes", 1009)


def test_a_message_with_too_many_commas_is_refused_before_it_is_parsed(running: Service) -> None:
    with session(running) as (connection, _):
        connection.send("[" + "0," * 40_000 + "0]")
        assert ended(connection) == ("expected at most 4096 readings in a message", 1009)


def test_the_token_may_be_in_the_first_message(running: Service) -> None:
    with socket(running, headers={}) as connection:
        connection.send(json.dumps({"schema": 1, "token": running.token}))
        assert event(connection)["event"] == "ready"
    for wrong in ({}, {"token": "x" * 40}):
        with socket(running, headers={}) as connection:
            connection.send(json.dumps({"schema": 1, **wrong}))
            assert ended(connection) == (
                "expected token in the first message: the token that `fab serve` names", 1008,
            )  # fmt: skip


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": "Bearer no"}, 401),
        ({"Origin": "http://elsewhere.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
def test_the_handshake_is_guarded(running: Service, headers: dict[str, str], status: int) -> None:
    with pytest.raises(InvalidStatus) as refused, socket(running, headers={**running.headers, **headers}):
        pass
    assert refused.value.response.status_code == status
    assert json.loads(refused.value.response.body)["error"].startswith(("expected ", "this is not for "))


def test_a_host_of_another_name_is_refused(running: Service) -> None:
    upgrade = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
               "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")  # fmt: skip
    asked = head("/v1/stream", running.token, *upgrade, method="GET")
    answer = exchange(running.port, asked.replace(b"localhost", b"elsewhere.example"))
    assert answer is not None
    assert (answer.status, answer.error) == (421, "expected localhost, an address or this machine's name as Host")


def test_the_own_page_may_come(running: Service) -> None:
    with socket(
        running, headers={"Origin": f"http://{running.address}", "Sec-Fetch-Site": "same-origin"}
    ) as connection:
        connection.send(json.dumps({"schema": 1, "token": running.token}))
        assert event(connection)["event"] == "ready"


def test_other_paths_have_no_websocket(running: Service) -> None:
    with running.client() as client:
        upgrade = {"Connection": "upgrade", "Upgrade": "websocket"}
        assert client.get("/v2", headers=upgrade).json()["name"] == "pscluster"
        assert client.get("/v1/stream").status_code == 404
        answer = client.get("/v1/stream", headers=upgrade)
        assert (answer.status_code, answer.text) != (101, "")


def test_readings_beyond_the_rate_are_refused(running: Service) -> None:
    with session(running) as (connection, _):
        given = walk(4096)
        for _ in range(6):
            connection.send(message(given))
        words, code = ended(connection)
    assert (words, code) == ("too fast: expected at most 500 readings a second, 16384 at once", 1008)
