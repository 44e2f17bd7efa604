"""Devices at a broker of MQTT: a real mosquitto, real services, and a client."""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core.errors import UsageError
from deploy.common.project import environment_for_any_folder
from recognise.service.authority import server_certificate
from recognise.service.broker import broker_of
from recognise.service.limits import MEBIBYTE
from tests.ports import free_port
from tests.recognise.exports import export
from tests.recognise.readings import Readings, walk
from tests.recognise.service.brokers import (
    PASSWORD,
    USER,
    Hearing,
    hearing,
    mosquitto,
    until_it_answers,
)
from tests.recognise.service.running import Service, command, served, state_of
from tests.recognise.service.streaming import content, library, plain
from tests.recognise.service.test_sensor_logger import BEGIN, recorded
from tests.recognise.tables import table

PREFIX = "house/har"


def sent(client: Hearing, device: str, given: Readings, size: int = 100, **more: object) -> None:
    for at in range(0, len(given), size):
        client.publish(
            f"{PREFIX}/{device}/readings", content(given.rows(slice(at, at + size)), **more)
        )


def at(port: int) -> tuple[str, str]:
    """The words of a service of the broker at this port."""
    return "--mqtt", f"mqtt://127.0.0.1:{port}/{PREFIX}"


def wanted(running: Service, given: Readings) -> list[dict[str, Any]]:
    """Return the library's events for these readings."""
    return library(running.folder / "models/har/versions/1", given, votes=2, of=3)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, int]]:
    folder = tmp_path_factory.mktemp("mqtt")
    port = free_port()
    with (
        mosquitto(folder / "broker", port),
        served(folder, *at(port), make=export) as running,
    ):
        yield running, port


@pytest.fixture
def client(place: tuple[Service, int]) -> Iterator[Hearing]:
    with hearing(place[1], PREFIX) as found:
        until_it_answers(found, f"{PREFIX}/anybody")
        yield found


def test_a_device_gets_the_labels_that_the_library_gives(
    place: tuple[Service, int], client: Hearing
) -> None:
    given = walk(900)
    sent(client, "badge", given)
    found = client.labels(13)
    assert plain(found) == plain(wanted(place[0], given))
    assert all(
        one["version"] == 1 and one["latency_ms"] > 0 for one in found if one["event"] == "label"
    )


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
        post = {
            "messageId": 0,
            "sessionId": "walk",
            "deviceId": "phone",
            "payload": payload[at : at + 700],
        }
        client.publish(f"{PREFIX}/{platform}-phone/sensor-logger/{platform}", post)
    assert plain(client.labels(13)) == plain(wanted(place[0], given))


@pytest.mark.parametrize(
    ("words", "end", "payload"),
    [*table("service/streams", "published"), ("expected readings", "readings", "[" * 100_000)],
)
def test_what_is_no_message_is_answered_with_the_reason(
    client: Hearing, words: str, end: str, payload: str
) -> None:
    client.publish(f"{PREFIX}/broken/{end}", payload.encode("latin-1"))
    topic, event = client.event()
    assert (topic, event["event"]) == (f"{PREFIX}/broken/events", "refused")
    assert words in event["error"]


def test_one_that_is_too_fast_is_refused_and_begins_again(client: Hearing) -> None:
    """However slow the machine is: each message waits for its one label, until one is refused."""
    flood = f"{PREFIX}/flood/readings"

    def answered(given: Readings, **asked: int) -> dict[str, Any]:
        client.publish(flood, content(given, **asked))
        while (found := client.event()[1])["event"] not in ("label", "refused"):
            pass
        return found

    while (found := answered(walk(4096), hop=4096))["event"] != "refused":
        pass
    assert "too fast: expected at most 500 readings a second" in found["error"]
    assert answered(walk(200), hop=64, votes=1, of=1)["label"] == "MOVING"


def test_a_message_beyond_the_limit_never_comes(
    place: tuple[Service, int], client: Hearing
) -> None:
    """The broker keeps the largest packet that the service has named."""
    client.publish(f"{PREFIX}/large/readings", b"x" * (2 * MEBIBYTE))
    client.publish(f"{PREFIX}/large/readings", b"small")
    assert "expected readings" in client.event()[1]["error"]
    assert place[0].served == 1


def test_its_sessions_are_counted(place: tuple[Service, int], client: Hearing) -> None:
    sent(client, "counted", walk(200), votes=1, of=1)
    client.labels(2)
    assert place[0].metrics().keys() >= {
        'session_windows_total{kind="mqtt"}',
        'sessions{kind="mqtt"}',
    }


def test_a_broker_that_comes_back_is_taken_again(tmp_path: Path) -> None:
    """The service answers over HTTP meanwhile."""
    port = free_port()
    with served(tmp_path, *at(port), make=export) as running:
        for _ in range(2):
            assert running.served == 1
            with mosquitto(tmp_path / "broker", port), hearing(port, PREFIX) as client:
                until_it_answers(client, f"{PREFIX}/anybody")


def test_a_broker_with_tls_and_a_password(tmp_path: Path) -> None:
    port = free_port()
    plain_port = free_port()
    certificate = server_certificate(tmp_path, ["127.0.0.1", "localhost"])
    (tmp_path / "credentials").write_text(f"{USER}:{PASSWORD}\n")
    lines = (
        *(f"listener {plain_port} 127.0.0.1", f"listener {port} 127.0.0.1"),
        *(f"certfile {certificate}", f"keyfile {certificate}"),
    )
    words = (
        *("--mqtt", f"mqtts://localhost:{port}/{PREFIX}"),
        *("--mqtt-credentials", str(tmp_path / "credentials")),
        *("--mqtt-authority", str(tmp_path / "authority.crt")),
    )
    with (
        mosquitto(tmp_path / "broker", free_port(), *lines, anonymous=False),
        served(tmp_path, *words, make=export),
        hearing(plain_port, PREFIX, password=True) as client,
    ):
        until_it_answers(client, f"{PREFIX}/anybody")


def test_a_wrong_password_is_a_line_of_the_log_and_the_service_stays(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "credentials").write_text(f"{USER}:another\n")
    words = ("--mqtt-credentials", str(tmp_path / "credentials"))
    started = command(state_of(tmp_path), "--model", str(export(tmp_path / "export")), *at(port))
    with (
        mosquitto(tmp_path / "broker", port, anonymous=False),
        subprocess.Popen(
            [*started, *words], env=environment_for_any_folder(), stderr=subprocess.PIPE, text=True
        ) as running,
    ):
        assert running.stderr is not None
        line = next(one for one in running.stderr if "the broker" in one)
        assert f"the broker 127.0.0.1:{port}: " in line
        assert "another" not in line
        running.send_signal(signal.SIGTERM)
        assert running.wait(30) == 0


LONG = "mqtt://h/" + "a" * 300


@pytest.mark.parametrize(
    ("said", "url"),
    [*table("service/streams", "brokers"), ("a topic without + and #", LONG)],
)
def test_what_is_no_broker_is_one_line(said: str, url: str) -> None:
    with pytest.raises(UsageError) as caught:
        broker_of(url, None, None)
    assert said in str(caught.value)
    assert "u:p" not in str(caught.value)


def test_files_for_a_broker(tmp_path: Path) -> None:
    both = tmp_path / "both"
    both.write_text("me:a:b\n")
    assert broker_of("mqtts://h/x/y", both, both) == broker_of("mqtts://h:8883/x/y/", both, both)
    found = broker_of("mqtt://h", both, None)
    named = [found.user, found.password, found.port, found.prefix, found.tls]
    assert named == ["me", "a:b", 1883, "pscluster", False]
    assert "a:b" not in repr(found)
    none = tmp_path / "none"
    none.write_text("no colon")
    missing = tmp_path / "missing"
    for credentials, authority, said in (
        (none, None, "expected one line, USER:PASSWORD"),
        (missing, None, "check --mqtt-credentials"),
        (None, missing, "expected it with mqtts"),
    ):
        with pytest.raises(UsageError, match=said):
            broker_of("mqtt://h", credentials, authority)
