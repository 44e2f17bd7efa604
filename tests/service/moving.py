"""A client whose session moves: it sends at 50 Hz, goes on elsewhere where its service ends, and notes each event."""

import json
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Any

import numpy as np
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection

from tests.recognise.readings import Readings
from tests.service.running import Service
from tests.service.streaming import event, message, socket

RESTART = 1012
PATIENCE_SECONDS = 60.0


class Walker:
    """One session over the services of `places`, which may be there or not at the moment."""

    def __init__(
        self, places: Callable[[], Sequence[Service]], readings: Readings, each: int = 10, **hello: Any
    ) -> None:
        self._places, self._readings, self._each, self._hello = places, readings, each, hello
        self.events: list[dict[str, Any]] = []
        self.readies: list[dict[str, Any]] = []
        self.moves = 0
        self.stop = threading.Event()
        """Ends the readings; the last windows are still waited for."""
        self.wrong: list[object] = []
        self._state: dict[str, Any] = {}
        self._sent = 0

    def walk(self) -> None:
        """Send everything, at the pace of its times, and hear everything."""
        try:
            begun = time.monotonic() - self._readings.times[0]
            while not self._is_over():
                with ExitStack() as stack:
                    connection = self._opened(stack)
                    try:
                        self._hear(connection, 0.0)
                        while not self._is_over():
                            if not self._state:  # else the session moves, and what follows is for the next service
                                self._send(connection, begun)
                            self._hear(connection, 0.02)
                        self._hear(connection, 1.0)
                    except ConnectionClosed as closed:
                        self._moved(connection, closed)
        except Exception as problem:
            self.wrong.append(repr(problem))

    @property
    def labels(self) -> list[dict[str, Any]]:
        """Those that came so far."""
        return [one for one in self.events if one["event"] == "label"]

    @property
    def taken(self) -> Readings:
        """The readings that were sent."""
        return self._readings.rows(slice(0, self._sent))

    def _is_over(self) -> bool:
        return self._sent >= len(self._readings) or self.stop.is_set() or bool(self.wrong)

    def _opened(self, stack: ExitStack) -> ClientConnection:
        end = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < end:
            for service in self._places():
                try:
                    found = stack.enter_context(socket(service))
                    found.send(json.dumps({"schema": 1, **self._hello, **self._state}))
                    ready = event(found)
                except (OSError, InvalidStatus, EOFError, ConnectionClosed):  # it ends, or is not there yet
                    continue
                assert ready["event"] == "ready", ready
                self.readies.append(ready)
                self._state = {}
                return found
            self.stop.wait(0.05)
        raise AssertionError("no service answers")

    def _send(self, connection: ClientConnection, begun: float) -> None:
        due = int(np.searchsorted(self._readings.times, time.monotonic() - begun, "right"))
        while due - self._sent >= self._each:
            following = self._readings.rows(slice(self._sent, self._sent + self._each))
            self._sent += len(following)
            connection.send(message(following))

    def _hear(self, connection: ClientConnection, seconds: float) -> None:
        try:
            while True:
                found = json.loads(connection.recv(timeout=seconds))
                if found["event"] == "moved":
                    self._state = {"resume": found["resume"]}
                    at = found["at"]
                    self._sent = 0 if at is None else int(np.searchsorted(self._readings.times, at, "right"))
                else:
                    self.events.append(found)
        except TimeoutError:
            return

    def _moved(self, connection: ClientConnection, closed: ConnectionClosed) -> None:
        """What the service said before it closed is still there when a message to it failed."""
        with suppress(ConnectionClosed):
            self._hear(connection, 0.0)
        if closed.rcvd is None or closed.rcvd.code != RESTART or not self._state:
            self.wrong.append((repr(closed), bool(self._state)))
        self.moves += 1
