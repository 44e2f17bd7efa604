"""A hundred thousand damaged requests, and as many frames: each end has its reason, and memory stays flat."""

import json
import os
import random
import socket
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.recognise.exports import export as export_of_readings
from tests.recognise.readings import walk
from tests.service.exports import export, windows
from tests.service.frames import ENDING, LAST, Answers, answers, conversations, may_close
from tests.service.malformed import INFER
from tests.service.raw import exchange, post
from tests.service.running import Service, as_json, service
from tests.service.streaming import UPGRADE, labels, session
from tests.service.streaming import send as send_readings

REQUESTS = int(os.environ.get("PSCLUSTER_DAMAGED_REQUESTS", "100000"))
FRAMES = int(os.environ.get("PSCLUSTER_DAMAGED_FRAMES", "100000"))
FRAMES_A_CONNECTION = 5
SOON_SECONDS = 0.05
"""After that a connection whose last frame announced more than came gets the rest."""
CLIENTS = 4
SPARE_KB = 8 * 1024
"""Less than one large body."""
PIECES = (
    b"\r\n",
    b"\r\n\r\n",
    b"\x00",
    b"-1",
    b"9" * 30,
    b"[" * 400,
    b"}",
    b",",
    b"NaN",
    b"1e999",
    b"\xff",
    b'"',
    b": ",
)


def right(token: str) -> list[bytes]:
    """Requests with nothing wrong, to damage."""
    given = windows(2)
    tensor = {
        "name": "windows",
        "shape": [2, 8, 3],
        "datatype": "FP32",
        "parameters": {"binary_data_size": given.nbytes},
    }
    text = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    return [
        post(INFER, token, json.dumps(as_json(given)).encode()),
        post(INFER, token, text + given.tobytes(), f"Inference-Header-Content-Length: {len(text)}"),
        post("/v2", token, b"").replace(b"POST", b"GET"),
    ]


def damaged(request: bytes, chance: random.Random) -> bytes:
    """The request with one to four places changed."""
    made = bytearray(request)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(made))
        match chance.randrange(5):
            case 0:
                made[at] = chance.randrange(256)
            case 1:
                del made[at : at + chance.randint(1, 40)]
            case 2:
                made[at:at] = chance.choice(PIECES)
            case 3:
                made[at:at] = made[at : at + 60]
            case 4:
                made[at : at + 8] = chance.randbytes(8)
        if not made:
            return b"\r\n"
    return bytes(made)


def send(port: int, token: str, seed: int, count: int) -> Counter[str]:
    """Send that many damaged requests; how often each status came."""
    chance, found = random.Random(seed), Counter[str]()
    originals = right(token)
    for _ in range(count):
        noise = damaged(chance.choice(originals), chance)
        try:
            answer = exchange(port, noise, ends=True)
        except ConnectionResetError:
            found["reset"] += 1
            continue
        if answer is None:
            found["closed"] += 1
            continue
        assert answer.status != 500, (noise, answer)
        assert answer.status == 200 or answer.error, (noise, answer)
        found[str(answer.status)] += 1
    return found


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_hundred_thousand_damaged_requests_leave_the_service_as_it_was(tmp_path: Path) -> None:
    export(tmp_path / "export")
    with service(tmp_path, "--model", str(tmp_path / "export")) as running, ThreadPoolExecutor(CLIENTS) as pool:
        figures: list[int] = []
        statuses: Counter[str] = Counter()
        parts = 10
        for part in range(parts):
            seeds = range(part * CLIENTS, (part + 1) * CLIENTS)
            count = REQUESTS // parts // CLIENTS
            sent = [pool.submit(send, running.port, running.token, seed, count) for seed in seeds]
            statuses += sum((one.result() for one in sent), Counter())
            figures.append(running.status("VmRSS"))
        with running.client() as client:
            assert client.post(INFER, json=as_json(windows(1))).status_code == 200
    assert statuses.total() == REQUESTS
    assert statuses["400"] > REQUESTS / 10, statuses
    assert statuses["reset"] == 0, statuses
    assert figures[-1] <= figures[0] + SPARE_KB, (figures, statuses)


REFUSALS = {1002, 1007, 1008, 1009}
"""What a wrong frame or message gets. 1011 would be a failure of ours, 1013 a full service."""


def answered(running: Service, frames: list[bytes]) -> tuple[bytes, Answers]:
    """The head of the answer, and what came behind it up to the close, on a connection with these frames."""
    with socket.create_connection(("127.0.0.1", running.port), timeout=30) as connection:
        connection.sendall(UPGRADE.format(running.token).encode())
        received = heard(connection, b"", lambda content: b"\r\n\r\n" in content)
        head, _, content = received.partition(b"\r\n\r\n")
        parts = [b"".join([*frames, LAST]), ENDING]
        while parts and answers(content).code is None:
            connection.settimeout(30)
            with suppress(BrokenPipeError, ConnectionResetError):  # it has answered already
                connection.sendall(parts.pop(0))
            content = heard(connection, content, lambda content: answers(content).code is not None, waits=not parts)
        return head, answers(content)


def heard(
    connection: socket.socket, content: bytes, is_whole: Callable[[bytes], bool], waits: bool = True
) -> bytes:  # fmt: skip
    """`content` and what comes behind it, until it is whole or the connection ends; or, unless it waits, a while."""
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
    head, found = answered(running, frames)
    assert head.startswith(b"HTTP/1.1 101 "), (frames, head)
    refusals = [event["error"] for event in found.events if event["event"] == "refused"]
    if may_close(frames) and not refusals:  # the client's own close is answered with its code, or with nothing
        return "closed"
    assert found.code in REFUSALS, (frames, found)
    assert len(refusals) == 1, (frames, found)
    assert refusals[0], (frames, found)
    return str(found.code)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_hundred_thousand_damaged_frames_leave_the_service_as_it_was(tmp_path: Path) -> None:
    """Damaged and binary messages, wrong opcodes, lengths, masks, parts, first messages and states to go on from."""
    folder = export_of_readings(tmp_path / "export")
    examples = FRAMES // FRAMES_A_CONNECTION // CLIENTS
    figures: list[int] = []
    codes: Counter[str] = Counter()
    with service(tmp_path, "--model", str(folder)) as running, ThreadPoolExecutor(CLIENTS) as pool:

        @settings(
            max_examples=examples, deadline=None, database=None, derandomize=True,
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(st.lists(conversations(FRAMES_A_CONNECTION), min_size=CLIENTS, max_size=CLIENTS))
        def noise(each: list[list[bytes]]) -> None:
            codes.update(pool.map(lambda frames: why_it_ended(running, frames), each))
            figures.append(running.status("VmRSS"))

        noise()
        with session(running, votes=1, of=1) as (connection, _):
            send_readings(connection, walk(130))
            assert labels(connection, 1)
        with running.client() as client:
            assert 'sessions_refused_total{code="1011",role="service",task="0"} 0.0' in client.get("/metrics").text
    assert codes.total() * FRAMES_A_CONNECTION >= FRAMES
    assert min(codes[str(code)] for code in REFUSALS) > codes.total() / 200, codes
    print(f"{codes.total()} connections: {dict(codes)}, VmRSS {figures[len(figures) // 10]}, {figures[-1]} kB")
    assert figures[-1] <= figures[len(figures) // 10] + SPARE_KB, figures[:: max(1, len(figures) // 20)]
