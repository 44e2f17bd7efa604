"""Devices that publish at a broker of MQTT: a real mosquitto, real services, and a client of its own library."""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import UsageError
from cluster.exported import open_model
from deploy.common.project import environment_for_any_folder
from recognise.recogniser import Recogniser, settings_of
from recognise.service.authority import server_certificate
from recognise.service.broker import broker_of
from recognise.service.limits import MEBIBYTE
from recognise.stream import as_json
from tests.recognise.exports import export
from tests.recognise.readings import Readings, walk
from tests.service.brokers import PASSWORD, USER, Hearing, free_port, hearing, mosquitto, until_it_answers
from tests.service.running import Service, command, service, state_of
from tests.service.test_sensor_logger import BEGIN, plain, recorded

PREFIX = "house/har"


def content(given: Readings, **more: object) -> dict[str, Any]:
    return {
        "times": given.times.tolist(), "acceleration": given.acceleration.tolist(),
        "rotation": given.rotation.tolist(), **more,
    }  # fmt: skip


def sent(client: Hearing, device: str, given: Readings, size: int = 100, **more: object) -> None:
    for at in range(0, len(given), size):
        client.publish(f"{PREFIX}/{device}/readings", content(given.rows(slice(at, at + size)), **more))


def wanted(running: Service, given: Readings) -> list[dict[str, Any]]:
    """What the library says of these readings."""
    model = open_model(running.folder / "models" / "har" / "versions" / "1")
    library = Recogniser(model, settings_of(model.description, votes=2, of=3))
    return [as_json(one) for one in library.push(given.times, given.acceleration, given.rotation)]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, int]]:
    folder, port = tmp_path_factory.mktemp("mqtt"), free_port()
    words = ("--model", str(export(folder / "export")), "--mqtt", f"mqtt://127.0.0.1:{port}/{PREFIX}")
    with mosquitto(folder / "broker", port), service(folder, *words) as running:
        yield running, port


@pytest.fixture
def client(place: tuple[Service, int]) -> Iterator[Hearing]:
    with hearing(place[1], PREFIX) as found:
        until_it_answers(found, f"{PREFIX}/anybody")
        yield found


def test_a_device_gets_the_labels_that_the_library_gives(place: tuple[Service, int], client: Hearing) -> None:
    given = walk(900)
    sent(client, "badge", given)
    found = client.labels(13)
    assert plain(found) == plain(wanted(place[0], given))
    assert all(one["version"] == 1 and one["latency_ms"] > 0 for one in found if one["event"] == "label")


def test_two_devices_are_two_sessions(client: Hearing) -> None:
    given = walk(400)
    for at in range(0, 400, 100):
        for device in ("left", "right"):
            sent(client, device, given.rows(slice(at, at + 100)), hop=64, votes=1, of=1)
    found: dict[str, list[float]] = {}
    while sum(map(len, found.values())) < 10:
        topic, event = client.event()
        if event["event"] == "label":
            found.setdefault(topic.split("/")[-2], []).append(event["at"])
    assert found["left"] == found["right"] == sorted(found["left"])


@pytest.mark.parametrize("platform", ["android", "ios"])
def test_the_posts_of_sensor_logger_come_through_a_broker_too(
    place: tuple[Service, int], client: Hearing, platform: str
) -> None:
    given = walk(900, begin=BEGIN)
    payload = recorded(platform, given)
    for at in range(0, len(payload), 700):
        post = {"messageId": 0, "sessionId": "walk", "deviceId": "phone", "payload": payload[at : at + 700]}
        client.publish(f"{PREFIX}/{platform}-phone/sensor-logger/{platform}", post)
    assert plain(client.labels(13)) == plain(wanted(place[0], given))


@pytest.mark.parametrize(
    ("end", "payload", "words"),
    [
        ("readings", b"\xff\xfe", "expected readings"),
        ("readings", b"[" * 100_000, "expected readings"),
        ("readings", b'{"times": [0], "acceleration": [], "rotation": []}', "expected as many times as acceleration"),
        ("readings", b'{"times": [0], "acceleration": [[0,0,1]], "rotation": [[0,0,0]], "hop": 1}', "hop: expected 5"),
        ("readings", b'{"times": [0], "acceleration": [[0,0,1]], "rotation": [[0,0,0]], "token": "x"}', "token"),
        ("sensor-logger/ios", b"{}", "expected a post of Sensor Logger"),
        ("sensor-logger/symbian", b"{}", "expected android, ios, standard at its end, got 'symbian'"),
    ],
)
def test_what_is_no_message_is_answered_with_the_reason(client: Hearing, end: str, payload: bytes, words: str) -> None:
    client.publish(f"{PREFIX}/broken/{end}", payload)
    topic, event = client.event()
    assert (topic, event["event"]) == (f"{PREFIX}/broken/events", "refused")
    assert words in event["error"]


def test_one_that_is_too_fast_is_refused_and_begins_again(client: Hearing) -> None:
    given = walk(4096)
    for _ in range(6):
        client.publish(f"{PREFIX}/flood/readings", content(given, hop=2048))
    found: list[dict[str, Any]] = []
    while not any(one["event"] == "refused" for one in found):
        found.append(client.event()[1])
    assert "too fast: expected at most 500 readings a second" in found[-1]["error"]
    client.publish(f"{PREFIX}/flood/readings", content(walk(200), hop=64, votes=1, of=1))
    while found[-1]["event"] != "label":
        found.append(client.event()[1])


def test_a_message_beyond_the_limit_never_comes(place: tuple[Service, int], client: Hearing) -> None:
    """The broker keeps the largest packet that the service has named."""
    client.publish(f"{PREFIX}/large/readings", b"x" * (2 * MEBIBYTE))
    client.publish(f"{PREFIX}/large/readings", b"small")
    assert "expected readings" in client.event()[1]["error"]
    with place[0].client() as http:
        assert http.get("/v2/health/ready").status_code == 200


def test_its_sessions_are_counted(place: tuple[Service, int], client: Hearing) -> None:
    sent(client, "counted", walk(200), votes=1, of=1)
    client.labels(2)
    with place[0].client() as http:
        text = http.get("/metrics").text
    assert 'pscluster_service_session_windows_total{kind="mqtt",role="service",task="0"}' in text
    assert 'pscluster_service_sessions{kind="mqtt",role="service",task="0"}' in text


def test_a_broker_that_comes_back_is_taken_again(tmp_path: Path) -> None:
    """The service answers over HTTP meanwhile."""
    port = free_port()
    words = ("--model", str(export(tmp_path / "export")), "--mqtt", f"mqtt://127.0.0.1:{port}/{PREFIX}")
    with service(tmp_path, *words) as running:
        for _ in range(2):
            with running.client() as http:
                assert http.get("/v2/health/ready").status_code == 200
            with mosquitto(tmp_path / "broker", port), hearing(port, PREFIX) as client:
                until_it_answers(client, f"{PREFIX}/anybody")


def test_a_broker_with_tls_and_a_password(tmp_path: Path) -> None:
    port, certificate = free_port(), server_certificate(tmp_path, ["127.0.0.1", "localhost"])
    plain_port = free_port()
    (tmp_path / "credentials").write_text(f"{USER}:{PASSWORD}\n")
    lines = (
        *(f"listener {plain_port} 127.0.0.1", f"listener {port} 127.0.0.1"),
        *(f"certfile {certificate}", f"keyfile {certificate}"),
    )
    words = (
        *("--model", str(export(tmp_path / "export")), "--mqtt", f"mqtts://localhost:{port}/{PREFIX}"),
        *("--mqtt-credentials", str(tmp_path / "credentials")),
        *("--mqtt-authority", str(tmp_path / "authority.crt")),
    )
    with (
        mosquitto(tmp_path / "broker", free_port(), *lines, anonymous=False),
        service(tmp_path, *words),
        hearing(plain_port, PREFIX, password=True) as client,
    ):
        until_it_answers(client, f"{PREFIX}/anybody")


def test_a_wrong_password_is_a_line_of_the_log_and_the_service_stays(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "credentials").write_text(f"{USER}:another\n")
    words = command(
        state_of(tmp_path), "--model", str(export(tmp_path / "export")), "--mqtt", f"mqtt://127.0.0.1:{port}",
        "--mqtt-credentials", str(tmp_path / "credentials"),
    )  # fmt: skip
    with (
        mosquitto(tmp_path / "broker", port, anonymous=False),
        subprocess.Popen(words, env=environment_for_any_folder(), stderr=subprocess.PIPE, text=True) as running,
    ):
        assert running.stderr is not None
        line = next(one for one in running.stderr if "the broker" in one)
        assert f"the broker 127.0.0.1:{port}: " in line
        assert "another" not in line
        running.send_signal(signal.SIGTERM)
        assert running.wait(30) == 0


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://x", "expected mqtt://HOST"), ("mqtt://", "expected mqtt://HOST"), ("mqtt://h:x", "expected mqtt://HOST"),
        ("mqtt://u:p@h", "put it into --mqtt-credentials FILE"), ("mqtt://h/a/+/b", "a topic without + and #"),
        ("mqtt://h/" + "a" * 300, "a topic without + and #"), ("mqtt://h?x=1", "expected mqtt://HOST"),
    ],
)  # fmt: skip
def test_what_is_no_broker_is_one_line(url: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        broker_of(url, None, None)
    assert said in str(caught.value)
    assert "u:p" not in str(caught.value)


def test_files_for_a_broker(tmp_path: Path) -> None:
    (tmp_path / "both").write_text("me:a:b\n")
    assert broker_of("mqtts://h/x/y", tmp_path / "both", tmp_path / "both") == broker_of(
        "mqtts://h:8883/x/y/", tmp_path / "both", tmp_path / "both"
    )
    found = broker_of("mqtt://h", tmp_path / "both", None)
    assert (found.user, found.password, found.port, found.prefix, found.tls) == ("me", "a:b", 1883, "pscluster", False)
    assert "a:b" not in repr(found)
    (tmp_path / "none").write_text("no colon")
    for credentials, authority, said in (
        (tmp_path / "none", None, "expected one line, USER:PASSWORD"),
        (tmp_path / "missing", None, "check --mqtt-credentials"),
        (None, tmp_path / "missing", "expected it with mqtts"),
    ):
        with pytest.raises(UsageError, match=said):
            broker_of("mqtt://h", credentials, authority)


def test_flags_of_a_broker_without_one(tmp_path: Path) -> None:
    words = command(state_of(tmp_path), "--mqtt-credentials", "x")
    refused = subprocess.run(words, env=environment_for_any_folder(), capture_output=True, text=True, timeout=60)
    assert (refused.returncode, "expected them with --mqtt" in refused.stderr) == (2, True)
    assert json.dumps(refused.stderr).count("\\n") == 1
