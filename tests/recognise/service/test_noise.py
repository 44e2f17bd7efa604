"""A hundred thousand damaged requests and frames: each end has its reason."""

import os
import socket
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.recognise.exports import export as export_of_readings
from tests.recognise.readings import walk
from tests.recognise.service.exports import windows
from tests.recognise.service.frames import Answers, answers, conversations, sent
from tests.recognise.service.malformed import INFER, requests, status_of
from tests.recognise.service.running import Service, as_json, served
from tests.recognise.service.streaming import UPGRADE, labels, send, session

REQUESTS = int(os.environ.get("PSCLUSTER_DAMAGED_REQUESTS", "100000"))
FRAMES = int(os.environ.get("PSCLUSTER_DAMAGED_FRAMES", "100000"))
FRAMES_A_CONNECTION = 5
SOON_SECONDS = 0.05
"""After that a connection whose last frame announced more than came gets the rest."""
CLIENTS = 4
SPARE_KB = 8 * 1024
"""Less than one large body."""

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


def ends_of(
    running: Service, noise: st.SearchStrategy[Any], end: Callable[[Service, Any], str], count: int
) -> Counter[str]:
    """How so many pieces of noise end, each on a connection; the service's memory stays."""
    figures: list[int] = []
    found: Counter[str] = Counter()
    with ThreadPoolExecutor(CLIENTS) as pool:

        @settings(
            max_examples=count // CLIENTS,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        )
        @given(st.lists(noise, min_size=CLIENTS, max_size=CLIENTS))
        def all_end(each: list[Any]) -> None:
            found.update(pool.map(partial(end, running), each))
            figures.append(running.status("VmRSS"))

        all_end()
    early = figures[len(figures) // 10]
    print(f"{found.total()} connections: {dict(found)}, VmRSS {early}, {figures[-1]} kB")
    assert found.total() >= count
    assert figures[-1] <= early + SPARE_KB, figures[:: max(1, len(figures) // 20)]
    return found


def test_a_hundred_thousand_damaged_requests_leave_the_service_as_it_was(tmp_path: Path) -> None:
    with served(tmp_path) as running:
        statuses = ends_of(running, requests(running.token), status_of, REQUESTS)
        with running.client() as client:
            assert client.post(INFER, json=as_json(windows(1))).status_code == 200
    assert statuses["400"] > REQUESTS / 10, statuses
    assert statuses["reset"] == 0, statuses


REFUSALS = {1002, 1007, 1008, 1009}
"""What a wrong frame or message gets. 1011 would be a failure of ours, 1013 a full service."""


def answered(running: Service, parts: list[bytes]) -> tuple[bytes, Answers]:
    """Return the head of the answer to these parts, and what came up to the close."""
    with running.connected() as connection:
        connection.sendall(UPGRADE.format(running.token).encode())
        received = heard(connection, b"", lambda content: b"\r\n\r\n" in content)
        head, _, content = received.partition(b"\r\n\r\n")
        while parts and answers(content).code is None:
            connection.settimeout(30)
            with suppress(BrokenPipeError, ConnectionResetError):  # it has answered already
                connection.sendall(parts.pop(0))
            content = heard(connection, content, has_closed, waits=not parts)
        return head, answers(content)


def has_closed(content: bytes) -> bool:
    return answers(content).code is not None


def heard(
    connection: socket.socket, content: bytes, is_whole: Callable[[bytes], bool], waits: bool = True
) -> bytes:
    """Return `content` and what comes behind it, until it is whole or the connection ends."""
    end = time.monotonic() + (30.0 if waits else SOON_SECONDS)
    connection.settimeout(SOON_SECONDS)
    with suppress(ConnectionResetError):
        while not is_whole(content) and time.monotonic() < end:
            with suppress(TimeoutError):
                more = connection.recv(65_536)
                if not more:
                    break
                content += more
    return content


def why_it_ended(running: Service, frames: list[bytes]) -> str:
    """Check that this connection got its reason; the close code."""
    parts, codes, closes = sent(frames)
    head, found = answered(running, parts)
    assert head.startswith(b"HTTP/1.1 101 "), (frames, head)
    refusals = [event["error"] for event in found.events if event["event"] == "refused"]
    # The client's own close is answered with its code, or with nothing.
    if closes and not refusals:
        return "closed"
    if not refusals:  # uvicorn's own end; where a close follows at once it sends no code
        assert found.code in codes or (codes and found.code is None), (frames, found, codes)
        return str(found.code)
    assert found.code in (1008, 1009), (frames, found)
    assert len(refusals) == 1, (frames, found)
    assert refusals[0], (frames, found)
    return str(found.code)


def test_a_hundred_thousand_damaged_frames_leave_the_service_as_it_was(tmp_path: Path) -> None:
    """Messages, opcodes, lengths, masks, parts, first messages and states are damaged."""
    with served(tmp_path, make=export_of_readings) as running:
        noise = conversations(FRAMES_A_CONNECTION)
        codes = ends_of(running, noise, why_it_ended, FRAMES // FRAMES_A_CONNECTION)
        with session(running, votes=1, of=1) as (connection, _):
            send(connection, walk(130))
            assert labels(connection, 1)
        assert running.metrics()['sessions_refused_total{code="1011"}'] == 0
    assert min(codes[str(code)] for code in REFUSALS) > codes.total() / 200, codes
