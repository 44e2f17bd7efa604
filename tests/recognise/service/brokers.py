"""A real mosquitto on a free port, and a client of its own library that publishes and listens."""

import base64
import hashlib
import json
import queue
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion

from tests.deploy.playing import eventually
from tests.habits import needs

USER = "service"
PASSWORD = "the-house"
SECONDS = 30.0


@contextmanager
def mosquitto(
    folder: Path, port: int, *lines: str, anonymous: bool = True
) -> Iterator["subprocess.Popen[bytes]"]:
    """A broker that listens; further `lines` are its configuration."""
    program = needs.tool("mosquitto")
    folder.mkdir(exist_ok=True)
    (folder / "passwords").write_text(f"{USER}:{_hashed(PASSWORD)}\n")
    (folder / "passwords").chmod(0o644)
    settings = (
        *(
            f"listener {port} 127.0.0.1",
            f"allow_anonymous {str(anonymous).lower()}",
            "persistence false",
        ),
        *(() if anonymous else (f"password_file {folder / 'passwords'}",)),
        *("user root", *lines),
    )
    (folder / "mosquitto.conf").write_text("\n".join(settings) + "\n")
    with (
        (folder / "mosquitto.log").open("ab") as log,
        subprocess.Popen(
            [program, "-c", folder / "mosquitto.conf"], stdout=log, stderr=log
        ) as process,
    ):
        try:
            eventually(lambda: process.poll() is not None or _listens(port), "mosquitto to listen")
            assert process.poll() is None, (folder / "mosquitto.log").read_text()
            yield process
        finally:
            process.terminate()


def _hashed(password: str) -> str:
    """As mosquitto_passwd writes it."""
    salt = b"twelve bytes"
    digest = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, 101)
    return f"$7$101${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"


def _listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


@dataclass
class Hearing:
    """A client that hears what is published below a prefix."""

    client: paho.Client
    heard: "queue.Queue[tuple[str, dict[str, Any]]]" = field(default_factory=queue.Queue)

    def publish(self, topic: str, content: object) -> None:
        if isinstance(content, bytes):
            payload = content
        else:
            payload = json.dumps(content).encode()
        self.client.publish(topic, payload, qos=1).wait_for_publish(SECONDS)

    def event(self) -> tuple[str, dict[str, Any]]:
        """The next event of any device."""
        return self.heard.get(timeout=SECONDS)

    def labels(self, count: int) -> list[dict[str, Any]]:
        """All events up to so many labels."""
        found: list[dict[str, Any]] = []
        while sum(one["event"] == "label" for one in found) < count:
            found.append(self.event()[1])
        return found


@contextmanager
def hearing(port: int, prefix: str, *, password: bool = False) -> Iterator[Hearing]:
    client = paho.Client(CallbackAPIVersion.VERSION2)
    if password:
        client.username_pw_set(USER, PASSWORD)
    made = Hearing(client)
    subscribed: queue.Queue[bool] = queue.Queue()
    client.on_message = lambda _client, _data, one: made.heard.put(
        (one.topic, json.loads(one.payload))
    )
    client.on_subscribe = lambda *_: subscribed.put(True)
    client.connect("127.0.0.1", port)
    client.loop_start()
    try:
        client.subscribe(f"{prefix}/+/events")
        subscribed.get(timeout=SECONDS)
        yield made
    finally:
        client.loop_stop()
        client.disconnect()


def until_it_answers(hearing: Hearing, topic: str) -> None:
    """Return once the service has subscribed: it answers a message that is no JSON."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        hearing.publish(f"{topic}/readings", b"hello?")
        try:
            hearing.heard.get(timeout=0.5)
            break
        except queue.Empty:
            continue
    else:
        raise AssertionError("the service does not answer at the broker")
    time.sleep(0.2)
    while not hearing.heard.empty():  # the answers to those that came before
        hearing.heard.get()
