"""A client of live sessions: `websockets`, unmodified, over a real socket."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.recognise.readings import Readings
from tests.service.running import Service

STREAM = "/v1/stream"
SECONDS = 30.0
UPGRADE = (
    "GET /v1/stream HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nAuthorization: Bearer {}\r\n\r\n"
)


@contextmanager
def socket(service: Service, **more: Any) -> Iterator[ClientConnection]:
    """A WebSocket with the token in its header, before the first message; `headers` replaces the header."""
    headers = more.pop("headers", service.headers)
    with connect(
        f"ws://{service.address}{STREAM}", additional_headers=headers, compression=None, proxy=None, **more
    ) as connection:
        yield connection


@contextmanager
def session(service: Service, **hello: Any) -> Iterator[tuple[ClientConnection, dict[str, Any]]]:
    """A session, and the event `ready` that it began with."""
    with socket(service) as connection:
        connection.send(json.dumps({"schema": 1, **hello}))
        yield connection, event(connection)


def event(connection: ClientConnection, seconds: float = SECONDS) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(connection.recv(timeout=seconds))
    return found


def message(readings: Readings) -> str:
    return json.dumps({
        "times": readings.times.tolist(),
        "acceleration": readings.acceleration.tolist(),
        "rotation": readings.rotation.tolist(),
    })  # fmt: skip


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
    return "".join(one["error"] for one in said if one["event"] == "refused"), closed.value.rcvd.code


def _hear(connection: ClientConnection, said: list[dict[str, Any]]) -> None:
    while True:
        said.append(event(connection))
