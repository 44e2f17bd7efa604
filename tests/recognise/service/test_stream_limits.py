"""The bounds of live sessions: numbers, silence, noise.

Each end has a reason, and the service stays as it was.
"""

import asyncio
import json
import socket as sockets
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed

from recognise.service.limits import Limits, RequestError, StreamLimits
from recognise.service.live.endpoint import _Heard
from recognise.service.live.session import Rate
from recognise.service.server import ServiceOptions, bound
from tests.recognise.exports import export
from tests.recognise.readings import walk
from tests.recognise.service.frames import CLOSE, HELLO, answers, frame
from tests.recognise.service.running import Service
from tests.recognise.service.streaming import (
    UPGRADE,
    ended,
    event,
    labels,
    message,
    send,
    session,
    socket,
)

LIMITS = StreamLimits()
PARTS = frame(1, b"[", fin=False) + frame(0, b"", fin=False) * 1100
EXPORT = export


def is_well(running: Service) -> bool:
    """Whether a right session still gets its label."""
    with session(running, votes=1, of=1) as (connection, _):
        send(connection, walk(130))
        return bool(labels(connection, 1)[0]["event"] in ("changed", "label"))


def test_more_sessions_than_there_is_room_for_are_told_so(running: Service) -> None:
    with ExitStack() as stack:
        for _ in range(LIMITS.sessions):
            _, ready = stack.enter_context(session(running))
            assert ready["event"] == "ready"
        told = []
        for _ in range(LIMITS.sessions // 8):
            told.append(stack.enter_context(socket(running)))
            assert event(told[-1]) == {
                "event": "refused",
                "error": f"{LIMITS.sessions} sessions are open already: come again later",
            }
        with running.client() as client:
            assert client.get("/v2").status_code == 200
            line = (
                f'service_sessions{{kind="stream",role="service",task="0"}} {LIMITS.sessions:.1f}'
            )
            assert line in client.get("/metrics").text
    assert is_well(running)


def test_a_client_that_reads_no_answers_is_not_kept_in_memory(running: Service) -> None:
    """It sends as much as it may, with faults in each reading, and reads nothing."""
    before = running.status("VmRSS")
    with session(running) as (connection, _):
        content = json.loads(message(walk(4096))) | {"times": [0.0] * 4096}
        with pytest.raises((ConnectionClosed, TimeoutError)):
            _send_for_ever(connection, json.dumps(content))
        assert running.status("VmRSS") < before + 64 * 1024
    assert is_well(running)


def _send_for_ever(connection: Any, text: str) -> None:
    connection.socket.settimeout(LIMITS.room_seconds * 4)
    while True:
        connection.send(text)


def test_a_clock_that_runs_ahead_of_the_service_s_is_refused(running: Service) -> None:
    """Labels a second are bounded by the server's clock too."""
    times = (0.1 * np.arange(4096)).tolist()
    with session(running) as (connection, _):
        connection.send(json.dumps(json.loads(message(walk(4096))) | {"times": times}))
        expected = "too fast: expected at most 1.25 seconds of readings a second, 330 at once"
        assert ended(connection) == (expected, 1008)


def test_pings_that_nobody_reads_end_the_connection(running: Service) -> None:
    ping = b"\x89\xfd" + bytes(4) + b"x" * 125
    with running.connected() as connection:
        connection.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, 4096)
        connection.sendall(UPGRADE.format(running.token).encode())
        assert b" 101 " in connection.recv(1000)
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            _flood(connection, ping * 100)
    assert is_well(running)


def _flood(connection: sockets.socket, content: bytes) -> None:
    while True:
        connection.sendall(content)


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (frame(1, HELLO) + frame(1, b"\xff") + frame(CLOSE, b"\x03\xe8"), None),
        (frame(1, HELLO) + frame(1, b"{}") * 65 + frame(CLOSE, b"\x03\xe8"), 1000),
        (PARTS + frame(0, b"") + frame(CLOSE, b"\x03\xe8"), 1000),
        (frame(1, HELLO) + frame(3, b""), 1002),
    ],
    ids=[
        "no UTF-8 and a close",
        "too many messages and a close",
        "too many frames and a close",
        "a wrong frame at once",
    ],
)
def test_what_comes_in_one_read_fails_no_session(
    running: Service, content: bytes, code: int | None
) -> None:
    """Where uvicorn fails the connection just ends; no traceback is logged."""
    with running.connected() as connection:
        connection.sendall(UPGRADE.format(running.token).encode())
        assert b" 101 " in connection.recv(1000)
        connection.sendall(content)
        received = b""
        while answers(received).code is None and (more := connection.recv(65_536)):
            received += more
    assert answers(received).code == code
    with running.client() as client:
        assert (
            'sessions_refused_total{code="1011",role="service",task="0"} 0.0'
            in client.get("/metrics").text
        )


def test_no_answer_waits_for_the_acknowledgement_of_its_first_part() -> None:
    with (
        bound(ServiceOptions("127.0.0.1", 0), Limits()) as listener,
        sockets.create_connection(listener.getsockname()),
    ):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(sockets.IPPROTO_TCP, sockets.TCP_NODELAY) == 1


def test_silence_ends_a_session() -> None:
    async def silent() -> None:
        await _Heard(at=-1000.0).silence(0.01)

    with pytest.raises(RequestError, match=r"expected the next readings within 0\.01 s"):
        asyncio.run(silent())


def test_a_rate_fills_with_time_and_has_a_burst() -> None:
    rate = Rate("readings", 10.0, 20, now=0.0)
    rate.take(20, now=0.0)
    rate.take(5, now=0.5)
    with pytest.raises(
        RequestError, match="too fast: expected at most 10 readings a second, 20 at once"
    ):
        rate.take(1, now=0.5)
    rate.take(20, now=100.0)


@pytest.mark.long
def test_a_client_that_says_nothing_is_told_what_was_expected(running: Service) -> None:
    with socket(running) as connection:
        assert ended(connection) == (
            f"expected the first message within {LIMITS.hello_seconds:g} s",
            1008,
        )
