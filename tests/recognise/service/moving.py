"""Clients that note what they get, and move when their service ends or its version changes."""

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection

from core.exported.description import read_description, write_description
from tests.deploy.playing import eventually
from tests.lazy import onnx
from tests.recognise.exports import export
from tests.recognise.readings import Readings
from tests.recognise.service.exports import Floats
from tests.recognise.service.running import PATH, Service, as_json
from tests.recognise.service.streaming import event, message, socket

RESTART = 1012
EACH = 10
"""Readings of a message."""
Places = Callable[[], Sequence[Service]]
"""The services that are there at the moment."""


def swapped(folder: Path) -> Path:
    """An export that calls moving still: the other bias and kernel sign."""
    described = read_description(export(folder))
    model = onnx.load(folder / "model.onnx")
    for one in model.graph.initializer:
        if one.name in ("kernel", "bias"):
            one.CopyFrom(onnx.numpy_helper.from_array(-onnx.numpy_helper.to_array(one), one.name))
    content = model.SerializeToString()
    (folder / "model.onnx").write_bytes(content)
    sha256 = hashlib.sha256(content).hexdigest()
    write_description(folder, replace(described, sha256=sha256, bytes=len(content)))
    return folder


class Walker:
    """One session at 50 Hz over the services of `places`."""

    def __init__(self, places: Places, readings: Readings, **hello: Any) -> None:
        self._places = places
        self._readings = readings
        self._hello = hello
        self.events: list[dict[str, Any]] = []
        self.moves = 0
        self.stop = threading.Event()
        """Ends the readings; the last windows are still waited for."""
        self.wrong: list[object] = []
        self._state: dict[str, Any] = {}
        self._sent = 0

    def run(self) -> None:
        """Send everything, at the pace of its times, and hear everything."""
        try:
            begun = time.monotonic() - self._readings.times[0]
            while not self._is_over():
                with ExitStack() as stack:
                    connection = self._opened(stack)
                    try:
                        self._talk(connection, begun)
                    except ConnectionClosed as closed:
                        self._moved(connection, closed)
        except Exception as problem:
            self.wrong.append(repr(problem))

    @property
    def versions(self) -> list[int]:
        """The version of each label that came so far."""
        return [one["version"] for one in self.events if one["event"] == "label"]

    def _is_over(self) -> bool:
        return self._sent >= len(self._readings) or self.stop.is_set() or bool(self.wrong)

    def _opened(self, stack: ExitStack) -> ClientConnection:
        found: list[ClientConnection] = []

        def opens() -> bool:
            for service in self._places():
                # It ends, or is not there yet.
                with suppress(OSError, InvalidStatus, EOFError, ConnectionClosed):
                    connection = stack.enter_context(socket(service))
                    connection.send(json.dumps({"schema": 1, **self._hello, **self._state}))
                    assert event(connection)["event"] == "ready"
                    found.append(connection)
                    return True
            return False

        eventually(opens, "a service to answer")
        self._state = {}
        return found[0]

    def _talk(self, connection: ClientConnection, begun: float) -> None:
        self._hear(connection, 0.0)
        while not self._is_over():
            due = int(np.searchsorted(self._readings.times, time.monotonic() - begun, "right"))
            # With a state the session moves, and what follows is for the next service.
            while due - self._sent >= EACH and not self._state:
                following = self._readings.rows(slice(self._sent, self._sent + EACH))
                self._sent += len(following)
                connection.send(message(following))
            self._hear(connection, 0.02)
        self._hear(connection, 1.0)

    def _hear(self, connection: ClientConnection, seconds: float) -> None:
        with suppress(TimeoutError):
            while True:
                found = event(connection, seconds)
                if found["event"] != "moved":
                    self.events.append(found)
                    continue
                self._state = {"resume": found["resume"]}
                last = -np.inf if found["at"] is None else found["at"]
                self._sent = int(np.searchsorted(self._readings.times, last, "right"))

    def _moved(self, connection: ClientConnection, closed: ConnectionClosed) -> None:
        """What the service said before it closed is still there when a message to it failed."""
        with suppress(ConnectionClosed):
            self._hear(connection, 0.0)
        if closed.rcvd is None or closed.rcvd.code != RESTART or not self._state:
            self.wrong.append((repr(closed), bool(self._state)))
        self.moves += 1


class Asker:
    """Requests one after the other; `wanted` are the logits of each version."""

    def __init__(self, place: Service, given: Floats, wanted: Mapping[int, Floats]) -> None:
        self._place = place
        self._body = as_json(given, outputs=[{"name": "logits"}])
        self._wanted = wanted
        self.stop = threading.Event()
        self.versions: list[int] = []
        self.wrong: list[object] = []

    def run(self) -> None:
        while not self.stop.is_set() and not self.wrong:
            try:
                self._ask()
            except httpx.TransportError as problem:
                self.wrong.append(repr(problem))

    def _ask(self) -> None:
        with self._place.client() as client:
            answer = client.post(f"{PATH}/infer", json=self._body)
        if answer.status_code != 200:
            self.wrong.append(answer.text)
            return
        found = answer.json()
        version = int(found["model_version"])
        wanted = self._wanted[version]
        got = np.reshape(found["outputs"][0]["data"], wanted.shape)
        if not np.allclose(got, wanted, rtol=1e-4, atol=1e-5):
            self.wrong.append((version, got.tolist()))
        self.versions.append(version)


@contextmanager
def under_way(*clients: Any) -> Iterator[None]:
    """Each of these `run` in a thread, until the block ends."""
    threads = [threading.Thread(target=one.run) for one in clients]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for one in clients:
            one.stop.set()
        for thread in threads:
            thread.join()


def wait_for_answers(clients: Sequence[Walker | Asker], version: int, more: int) -> None:
    """Until this version gave each client some more labels or answers than it has now."""
    wanted = [(client, client.versions.count(version) + more) for client in clients]
    for client, count in wanted:

        def has_them(client: Walker | Asker = client, count: int = count) -> bool:
            return client.versions.count(version) >= count or bool(client.wrong)

        eventually(has_them, f"{count} answers of version {version}")
