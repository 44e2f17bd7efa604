"""`POST /v1/sensor-logger`: what both platforms send of the same movement gets the same labels."""

import json
from typing import Any

import numpy as np
import pytest

from cluster.exported import open_model
from recognise.recogniser import Recogniser, settings_of
from recognise.stream import as_json
from tests.recognise.exports import export
from tests.recognise.readings import Numbers, Readings, walk
from tests.service.running import Service, service

PATH = "/v1/sensor-logger"
G = 9.80665
BEGIN = 1_700_000_000.0
"""Seconds of the epoch."""
APPLE = "SensorLogger/1 CFNetwork/1494 Darwin/23"
PLATFORMS: dict[str, tuple[dict[str, str], str]] = {
    "android": ({}, "okhttp/4.9"),
    "ios": ({"platform": "ios"}, APPLE),
    "standard": ({"platform": "standard"}, APPLE),
}
"""What the address says, and the User-Agent."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    folder = tmp_path_factory.mktemp("phones")
    with service(folder, "--model", str(export(folder / "export"))) as found:
        yield found


def entries(name: str, times: Numbers, values: Numbers) -> list[dict[str, Any]]:
    return [
        {"name": name, "time": round(1e9 * time), "values": dict(zip("xyz", row, strict=True)), "accuracy": 3}
        for time, row in zip(times.tolist(), values.tolist(), strict=True)
    ]


def recorded(platform: str, given: Readings) -> list[dict[str, Any]]:
    """The payload that the app makes of this movement, in the order of time. Android sends the total too."""
    sign = -1.0 if platform == "ios" else 1.0
    gravity = np.tile([0.0, 0.0, 1.0], (len(given), 1))
    found = [
        *entries("accelerometer", given.times, sign * G * (given.acceleration - gravity)),
        *entries("gravity", given.times, sign * G * gravity),
        *entries("gyroscope", given.times, given.rotation),
        *(entries("totalacceleration", given.times, G * given.acceleration) if platform == "android" else []),
        {"name": "location", "time": round(1e9 * given.times[0]), "values": {"speed": 1.2}},
        {"name": "battery", "time": round(1e9 * given.times[-1]), "batteryState": "full"},
    ]
    return sorted(found, key=lambda entry: int(entry["time"]))


def post(service: Service, session: str, payload: list[dict[str, Any]], platform: str = "android", **more: str) -> Any:
    """One post as the app makes it."""
    params, agent = PLATFORMS[platform]
    with service.client() as client:
        return client.post(
            PATH, params={**params, **more}, headers={"User-Agent": agent},
            json={"messageId": 0, "sessionId": session, "deviceId": "phone", "payload": payload},
        )  # fmt: skip


def events_of(service: Service, session: str, payload: list[dict[str, Any]], platform: str, size: int = 700) -> Any:
    found = []
    for at in range(0, len(payload), size):
        answer = post(service, session, payload[at : at + size], platform)
        assert answer.status_code == 200, answer.text
        found += answer.json()["events"]
    return found


def plain(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without what no two sessions have in common; numbers rounded as a sum of two floats needs it."""
    left = [{key: value for key, value in one.items() if key not in ("latency_ms", "version")} for one in events]
    return [{key: round(value, 4) if isinstance(value, float) else value for key, value in one.items()} for one in left]


@pytest.mark.parametrize("platform", PLATFORMS)
def test_the_same_movement_gets_the_same_labels_on_each_platform(running: Service, platform: str) -> None:
    given = walk(900, begin=BEGIN)
    model = open_model(running.folder / "models" / "har" / "versions" / "1")
    library = Recogniser(model, settings_of(model.description, votes=2, of=3))
    wanted = [as_json(one) for one in library.push(given.times, given.acceleration, given.rotation)]
    found = events_of(running, f"same-{platform}", recorded(platform, given), platform)
    assert sum(one["event"] == "label" for one in found) == 13
    assert plain(found) == plain(wanted)


def test_sensors_of_other_rates_are_taken_at_the_times_of_the_acceleration(running: Service) -> None:
    given = walk(600, begin=BEGIN)
    slow = np.arange(0, 600, 3)
    gravity = np.tile([0.0, 0.0, G], (len(given), 1))
    payload = [
        *entries("accelerometer", given.times, G * given.acceleration - gravity),
        *entries("gravity", given.times[slow] + 0.004, gravity[slow]),
        *entries("gyroscope", given.times[slow] + 0.007, np.zeros((len(slow), 3))),
    ]
    found = events_of(running, "rates", sorted(payload, key=lambda entry: int(entry["time"])), "android")
    assert [one["label"] for one in found if one["event"] == "label"][1:] == ["MOVING"] * 7
    assert [one for one in found if one["event"] == "fault"] == []


def test_a_missing_sensor_is_named(running: Service) -> None:
    given = walk(100, begin=BEGIN)
    answer = post(running, "missing", entries("accelerometer", given.times, given.acceleration)).json()
    assert (answer["events"], answer["missing"]) == ([], ["gravity", "gyroscope"])


def test_late_posts_and_pauses_are_faults(running: Service) -> None:
    given = walk(300, begin=BEGIN)
    payload = recorded("android", given)
    assert post(running, "late", payload[: len(payload) // 2]).status_code == 200
    late = post(running, "late", recorded("android", given.rows(slice(0, 10)))).json()["events"]
    assert [(one["event"], one["kind"]) for one in late] == [("fault", "late")]
    after = post(running, "late", recorded("android", walk(100, begin=BEGIN + 20.0))).json()["events"]
    assert "gap" in [one.get("kind") for one in after]
    before = post(running, "late", recorded("android", walk(100, begin=BEGIN - 100.0))).json()["events"]
    assert "clock_jump" in [one.get("kind") for one in before]


def test_a_number_of_no_sensor_costs_its_reading_and_no_other(running: Service) -> None:
    payload = recorded("android", walk(200, begin=BEGIN))
    turned = [entry for entry in payload if entry["name"] == "gyroscope"]
    turned[100]["values"] = {"x": 0.0, "y": "HUGE", "z": 0.0}
    body = json.dumps({"messageId": 0, "sessionId": "huge", "payload": payload}).replace('"HUGE"', "1e999")
    with running.client() as client:
        answer = client.post(PATH, content=body)
    events = answer.json()["events"]
    assert [one["kind"] for one in events if one["event"] == "fault"] == ["bad_value"]
    assert [one["label"] for one in events if one["event"] == "label"]


def test_an_iphone_must_say_its_signs(running: Service) -> None:
    with running.client() as client:
        agent = {"User-Agent": APPLE}
        refused = client.post(PATH, json={"sessionId": "apple", "payload": []}, headers=agent)
    assert (refused.status_code, refused.json()["error"].partition(":")[0]) == (400, "an iPhone")


def test_g_and_other_settings_stand_behind_the_address(running: Service) -> None:
    given = walk(400, begin=BEGIN)
    payload = [*entries("totalacceleration", given.times, given.acceleration),
               *entries("gyroscope", given.times, given.rotation)]  # fmt: skip
    answer = post(running, "g", payload, acceleration_unit="g", hop="32", votes="1", of="1").json()
    assert [one["label"] for one in answer["events"] if one["event"] == "label"] == ["MOVING"] * 9
    assert post(running, "m", payload).json()["events"][0]["kind"] == "implausible"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("{", "expected a post of Sensor Logger: Invalid JSON"),
        ('{"payload": []}', "sessionId: Field required"),
        ('{"sessionId": "x", "payload": [{"name": "gravity", "time": 1, "values": {"x": 1}}]}', "gravity: values:"),
        ('{"sessionId": "x", "payload": [{"name": "gravity", "time": 1.5}]}', "payload.0.time"),
        (json.dumps({"sessionId": "x", "payload": [{"name": "a", "time": 1}] * 20_000}), "at most 16384 items"),
    ],
)
def test_a_wrong_post_gets_the_reason(running: Service, body: str, words: str) -> None:
    with running.client() as client:
        refused = client.post(PATH, content=body)
    assert (refused.status_code, words in refused.json()["error"]) == (400, True), refused.text


def test_the_address_is_checked_and_may_have_the_token(running: Service) -> None:
    body = {"sessionId": "token", "payload": []}
    with running.client() as client:
        assert client.post(f"{PATH}?speed=1", json=body).json()["error"] == (
            "the address behind `?`: speed: Extra inputs are not permitted"
        )  # fmt: skip
        assert client.post(f"{PATH}?hop=2", json=body).json()["error"] == "hop: expected 5 samples or more, got 2"
        assert client.get(PATH).status_code == 405
        del client.headers["Authorization"]
        assert client.post(f"{PATH}?token={running.token}", json=body).status_code == 200
        assert client.post(f"{PATH}?token=no", json=body).status_code == 401
        assert client.post(PATH, json=body).status_code == 401


def test_metrics_count_sessions_windows_and_faults(running: Service) -> None:
    with running.client() as client:
        before = client.get("/metrics").text
        given = walk(200, begin=BEGIN)
        events_of(running, "counted", recorded("android", given), "android")
        after = client.get("/metrics").text

    def figure(text: str, name: str) -> float:
        found = [line for line in text.splitlines() if line.startswith(f"pscluster_{name}") and "sensor_logger" in line]
        return float(found[0].split()[-1]) if found else 0.0

    assert figure(after, "service_sessions{") == figure(before, "service_sessions{") + 1
    name = "service_session_windows_total"
    assert figure(after, name) == figure(before, name) + 2
