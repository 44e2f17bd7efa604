"""A hundred thousand damaged requests: each gets a reason or its connection is closed, and memory stays flat."""

import json
import os
import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.service.exports import export, windows
from tests.service.malformed import INFER
from tests.service.raw import exchange, post
from tests.service.running import as_json, service

REQUESTS = int(os.environ.get("PSCLUSTER_DAMAGED_REQUESTS", "100000"))
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
