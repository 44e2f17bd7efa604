"""A client of live sessions: `websockets`, unmodified, over a real socket."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from core.exported import open_model
from recognise.recogniser import Recogniser, settings_of
from recognise.stream import as_json
from tests.recognise.readings import Readings
from tests.recognise.service.running import Service

STREAM = "/v1/stream"
SECONDS = 30.0
UPGRADE = (
    "GET /v1/stream HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection:"
    " Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key:"
    " dGhlIHNhbXBsZSBub25jZQ==\r\nAuthorization: Bearer {}\r\n\r\n"
)


@contextmanager
def socket(service: Service, **more: Any) -> Iterator[ClientConnection]:
    """A WebSocket before the first message; `headers` replaces the one with the token."""
    headers = more.pop("headers", service.headers)
    path = more.pop("path", STREAM)
    with connect(
        f"ws://{service.address}{path}",
        additional_headers=headers,
        compression=None,
        proxy=None,
        **more,
    ) as connection:
        yield connection


@contextmanager
def session(service: Service, **hello: Any) -> Iterator[tuple[ClientConnection, dict[str, Any]]]:
    """A session, and the event `ready` that it began with."""
    with socket(service) as connection:
        connection.send(json.dumps({"schema": 1, **hello}))
        yield connection, event(connection)


def library(folder: Path, readings: Readings, **asked: Any) -> list[dict[str, Any]]:
    """Return the events of the library for these readings, with the model of this export."""
    model = open_model(folder)
    recogniser = Recogniser(model, settings_of(model.description, **asked))
    found: list[dict[str, Any]] = []
    for start in range(0, len(readings), 1000):
        part = readings.rows(slice(start, start + 1000))
        found += map(as_json, recogniser.push(part.times, part.acceleration, part.rotation))
    return found


def plain(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the events without what differs between sessions, with rounded numbers."""
    return [
        {
            key: round(value, 4) if isinstance(value, float) else value
            for key, value in one.items()
            if key not in ("latency_ms", "version")
        }
        for one in events
    ]


def event(connection: ClientConnection, seconds: float = SECONDS) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(connection.recv(timeout=seconds))
    return found


def content(readings: Readings, **more: object) -> dict[str, Any]:
    return {
        "times": readings.times.tolist(),
        "acceleration": readings.acceleration.tolist(),
        "rotation": readings.rotation.tolist(),
        **more,
    }


def message(readings: Readings) -> str:
    return json.dumps(content(readings))


def send(connection: ClientConnection, readings: Readings, size: int = 10) -> None:
    """The readings in messages of `size`."""
    for start in range(0, len(readings), size):
        connection.send(message(readings.rows(slice(start, start + size))))


def labels(connection: ClientConnection, count: int) -> list[dict[str, Any]]:
    """The next events up to that many labels."""
    found: list[dict[str, Any]] = []
    while sum(one["event"] == "label" for one in found) < count:
        found.append(event(connection))
        assert found[-1]["event"] != "refused", found[-1]
    return found


def ended(connection: ClientConnection) -> tuple[str, int]:
    """The words of the refusal, and the close code; the events before it are left."""
    said: list[dict[str, Any]] = []
    with pytest.raises(ConnectionClosed) as closed:
        _hear(connection, said)
    assert closed.value.rcvd is not None, closed.value
    return (
        "".join(one["error"] for one in said if one["event"] == "refused"),
        closed.value.rcvd.code,
    )


def _hear(connection: ClientConnection, said: list[dict[str, Any]]) -> None:
    while True:
        said.append(event(connection))
