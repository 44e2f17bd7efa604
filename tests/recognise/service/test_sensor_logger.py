"""`POST /v1/sensor-logger`: what both platforms send of the same movement gets the same labels."""

import json
from itertools import chain
from typing import Any

import httpx
import numpy as np
import pytest

from tests.recognise.exports import export
from tests.recognise.readings import Numbers, Readings, walk
from tests.recognise.service.running import Service
from tests.recognise.service.streaming import library, plain
from tests.tables import table

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
EXPORT = export


def entries(name: str, times: Numbers, values: Numbers) -> list[dict[str, Any]]:
    return [
        {"name": name, "time": round(1e9 * time), "values": dict(zip("xyz", row, strict=True))}
        for time, row in zip(times.tolist(), values.tolist(), strict=True)
    ]


def in_order(*parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(chain(*parts), key=lambda entry: int(entry["time"]))


def recorded(platform: str, given: Readings) -> list[dict[str, Any]]:
    """The payload that the app makes of this movement, in the order of time.

    Android sends the total too.
    """
    sign = {"ios": -G}.get(platform, G)
    gravity = np.tile([0.0, 0.0, 1.0], (len(given), 1))
    total = entries("totalacceleration", given.times, G * given.acceleration)
    return in_order(
        entries("accelerometer", given.times, sign * (given.acceleration - gravity)),
        entries("gravity", given.times, sign * gravity),
        entries("gyroscope", given.times, given.rotation),
        total if platform == "android" else [],
        [
            {"name": "location", "time": round(1e9 * given.times[0]), "values": {"speed": 1.2}},
            {"name": "battery", "time": round(1e9 * given.times[-1]), "batteryState": "full"},
        ],
    )


def post(
    service: Service,
    session: str,
    payload: list[dict[str, Any]],
    platform: str = "android",
    **more: str,
) -> Any:
    """One post as the app makes it."""
    params, agent = PLATFORMS[platform]
    with service.client() as client:
        return client.post(
            PATH,
            params={**params, **more},
            headers={"User-Agent": agent},
            json={"messageId": 0, "sessionId": session, "deviceId": "phone", "payload": payload},
        )


def events_of(
    service: Service, session: str, payload: list[dict[str, Any]], platform: str, size: int = 700
) -> Any:
    found = []
    for at in range(0, len(payload), size):
        answer = post(service, session, payload[at : at + size], platform)
        assert answer.status_code == 200, answer.text
        found += answer.json()["events"]
    return found


def labels_of(events: list[dict[str, Any]]) -> list[str | None]:
    return [one["label"] for one in events if one["event"] == "label"]


def kinds_of(events: list[dict[str, Any]]) -> list[str]:
    return [one["kind"] for one in events if one["event"] == "fault"]


@pytest.mark.parametrize("platform", PLATFORMS)
def test_the_same_movement_gets_the_same_labels_on_each_platform(
    running: Service, platform: str
) -> None:
    given = walk(900, begin=BEGIN)
    wanted = library(running.folder / "models/har/versions/1", given, votes=2, of=3)
    found = events_of(running, f"same-{platform}", recorded(platform, given), platform)
    assert len(labels_of(found)) == 13
    assert plain(found) == plain(wanted)


def test_sensors_of_other_rates_are_taken_at_the_times_of_the_acceleration(
    running: Service,
) -> None:
    given = walk(600, begin=BEGIN)
    slow = given.times[::3]
    gravity = np.tile([0.0, 0.0, G], (len(given), 1))
    payload = in_order(
        entries("accelerometer", given.times, G * given.acceleration - gravity),
        entries("gravity", slow + 0.004, gravity[::3]),
        entries("gyroscope", slow + 0.007, np.full((len(slow), 3), 0.1)),
    )
    found = events_of(running, "rates", payload, "android")
    assert labels_of(found)[1:] == ["MOVING"] * 7
    assert kinds_of(found) == []


def test_sensors_that_stay_away_are_named_and_said_once(running: Service) -> None:
    found = []
    for turn in range(5):
        given = walk(50, begin=BEGIN + turn)
        payload = entries("accelerometer", given.times, given.acceleration)
        answer = post(running, "away", payload).json()
        assert answer["missing"] == ["gravity", "gyroscope"]
        found.append([(one["event"], one["sensors"]) for one in answer["events"]])
    assert found == [[], [], [("missing", ["gravity", "gyroscope"])], [], []]


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("is_flat", [False, True])
def test_a_watch_sends_all_in_one_entry(running: Service, platform: str, is_flat: bool) -> None:
    """An Apple Watch in g and with an iPhone's signs, unless its units are standardised."""
    given = walk(900, begin=BEGIN)
    factor = {"ios": -1.0}.get(platform, G)
    gravity = np.array([0.0, 0.0, 1.0])
    payload = []
    for time, felt, turned in zip(given.times, given.acceleration, given.rotation, strict=True):
        parts = {
            "acceleration": factor * (felt - gravity),
            "gravity": factor * gravity,
            "rotationRate": turned,
        }
        values = {
            f"{name}{axis}": value
            for name, part in parts.items()
            for axis, value in zip("XYZ", part, strict=True)
        }
        entry = {"name": "wrist motion", "time": round(1e9 * time)}
        payload.append(entry | (values if is_flat else {"values": values | {"pitch": 0.1}}))
    session = f"watch-{platform}-{is_flat}"
    found = events_of(running, session, payload, platform)
    wanted = library(running.folder / "models/har/versions/1", given, votes=2, of=3)
    assert labels_of(found) == labels_of(wanted)
    last = post(running, session, recorded(platform, walk(10, begin=BEGIN + 18.1)), platform).json()
    assert (last["source"], last["missing"]) == ("watch", [])


@pytest.mark.parametrize("foreign", table("recognise/service/streams", "foreign"), ids=str)
def test_a_bad_entry_of_another_sensor_costs_no_reading(running: Service, foreign: Any) -> None:
    payload = recorded("android", walk(200, begin=BEGIN))
    answer = post(running, f"foreign-{foreign}"[:100], [*payload[:50], foreign, *payload[50:]])
    assert answer.status_code == 200, answer.text
    assert labels_of(answer.json()["events"])
    assert kinds_of(answer.json()["events"]) == []


def test_late_posts_and_pauses_are_faults(running: Service) -> None:
    def kinds(given: Readings) -> list[str]:
        return kinds_of(post(running, "late", recorded("android", given)).json()["events"])

    assert kinds(walk(150, begin=BEGIN)) == []
    assert kinds(walk(10, begin=BEGIN)) == ["late"]
    assert "gap" in kinds(walk(100, begin=BEGIN + 20.0))
    assert "clock_jump" in kinds(walk(100, begin=BEGIN - 100.0))


def test_a_number_of_no_sensor_costs_its_reading_and_no_other(running: Service) -> None:
    payload = recorded("android", walk(200, begin=BEGIN))
    turned = [entry for entry in payload if entry["name"] == "gyroscope"]
    turned[100]["values"]["y"] = "HUGE"
    body = json.dumps({"messageId": 0, "sessionId": "huge", "payload": payload})
    with running.client() as client:
        events = client.post(PATH, content=body.replace('"HUGE"', "1e999")).json()["events"]
    assert kinds_of(events) == ["bad_value"]
    assert labels_of(events)


def test_an_iphone_must_say_its_signs(client: httpx.Client) -> None:
    agent = {"User-Agent": APPLE}
    refused = client.post(PATH, json={"sessionId": "apple", "payload": []}, headers=agent)
    assert (refused.status_code, refused.json()["error"].partition(":")[0]) == (400, "an iPhone")


def test_g_and_other_settings_stand_behind_the_address(running: Service) -> None:
    given = walk(400, begin=BEGIN)
    payload = in_order(
        entries("totalacceleration", given.times, given.acceleration),
        entries("gyroscope", given.times, given.rotation),
    )
    asked = {"acceleration_unit": "g", "hop": "32", "votes": "1", "of": "1"}
    answer = post(running, "g", payload, **asked).json()
    assert labels_of(answer["events"]) == ["MOVING"] * 9
    assert post(running, "m", payload).json()["events"][0]["kind"] == "implausible"


MANY = {"sessionId": "x", "payload": [{"name": "a", "time": 1}] * 20_000}


@pytest.mark.parametrize(
    ("words", "body"),
    [*table("recognise/service/streams", "posts"), ("at most 16384 items", json.dumps(MANY))],
)
def test_a_wrong_post_gets_the_reason(client: httpx.Client, words: str, body: str) -> None:
    refused = client.post(PATH, content=body)
    assert (refused.status_code, words in refused.json()["error"]) == (400, True), refused.text


def test_the_address_is_checked_and_may_have_the_token(
    running: Service, client: httpx.Client
) -> None:
    body = {"sessionId": "token", "payload": []}
    for query, words in (
        ("speed=1", "the address behind `?`: speed: Extra inputs are not permitted"),
        ("hop=2", "hop: expected 5 samples or more, got 2"),
    ):
        assert client.post(f"{PATH}?{query}", json=body).json()["error"] == words
    assert client.get(PATH).status_code == 405
    del client.headers["Authorization"]
    for query, status in ((f"?token={running.token}", 200), ("?token=no", 401), ("", 401)):
        assert client.post(PATH + query, json=body).status_code == status


def test_metrics_count_sessions_windows_and_faults(running: Service) -> None:
    before = running.metrics()
    events_of(running, "counted", recorded("android", walk(200, begin=BEGIN)), "android")
    after = running.metrics()
    for name, more in (("sessions", 1), ("session_windows_total", 2)):
        key = f'{name}{{kind="sensor_logger"}}'
        assert after[key] == before.get(key, 0.0) + more
