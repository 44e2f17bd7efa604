"""Who still gets in while clients without the token hold or flood a service, and what one costs.

`python -m benchmarks.service_floods` starts a service of `--model`, or of a small network that it
trains and exports first. A client opens each of 150
connections again as soon as it is closed: WebSockets that say nothing, bodies that never come,
requests without the token. Meanwhile honest clients begin sessions and ask. Then one client
without the token, and one with it, take what memory they can; the figure is the largest sum of the
service and its model above their sum before.
"""

import contextlib
import http.client
import json
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from typing import Any

import psutil
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from benchmarks.inference.__main__ import exported
from benchmarks.report import arguments, publish, tell

CONNECTIONS = 150
SIZES = {"full": (40, 8.0), "quick": (10, 8.0), "smoke": (1, 1.0)}
"""Tries of honest clients, and seconds in which memory is taken."""
HERE = "127.0.0.1"
ELSEWHERE = "127.0.0.2"
SECONDS = 10.0
"""A client gives up after it."""
_HEAD = "{} HTTP/1.1\r\nHost: localhost\r\n{}\r\n"
_KEY = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
_UPGRADE = f"Upgrade: websocket\r\nConnection: Upgrade\r\n{_KEY}"
SILENT = _HEAD.format("GET /v1/stream", _UPGRADE).encode()
HUNG = _HEAD.format("POST /v2/models/har/infer", "Content-Length: 1000000\r\n").encode()
REFUSED = _HEAD.format("GET /v2", "").encode()
FLOODS = {"silent": SILENT, "hung": HUNG, "refused": REFUSED}
PARTIAL_FRAME = b"\x81\xff" + (1 << 20).to_bytes(8, "big") + bytes(4)
"""The head of a text frame of 1 MiB."""


@dataclass(frozen=True)
class Target:
    """A running service."""

    port: int
    token: str
    process: int

    @property
    def headers(self) -> dict[str, str]:
        """The header with the token."""
        return {"Authorization": f"Bearer {self.token}"}

    def resident(self) -> int:
        """Return the bytes of the service and the processes of its models."""
        service = psutil.Process(self.process)
        return sum(each.memory_info().rss for each in (service, *service.children()))


def begins(target: Target, *, in_message: bool = False) -> bool:
    """Return whether an honest session begins at the first try."""
    headers = target.headers
    hello: dict[str, object] = {"schema": 1}
    if in_message:
        headers = {}
        hello["token"] = target.token
    url = f"ws://{HERE}:{target.port}/v1/stream"
    try:
        with connect(
            url, additional_headers=headers, compression=None, proxy=None, open_timeout=SECONDS
        ) as session:
            session.send(json.dumps(hello))
            found = json.loads(session.recv(timeout=SECONDS))
    except (OSError, EOFError, WebSocketException):
        return False
    return bool(found["event"] == "ready")


def is_answered(target: Target) -> bool:
    """Return whether an honest request is answered."""
    connection = http.client.HTTPConnection(HERE, target.port, timeout=SECONDS)
    try:
        connection.request("GET", "/v2/models/har", headers=target.headers)
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


Greedy = Callable[[Target], Callable[[contextlib.ExitStack], None]]


@contextmanager
def flooded(port: int, first: bytes, address: str, count: int = CONNECTIONS) -> Iterator[list[int]]:
    """Hold so many connections of one client, each opened again once it ends; yield their number.

    They come from this address of loopback.
    """
    stop = threading.Event()
    opened = [0]

    def hold() -> None:
        with DefaultSelector() as selector:
            while not stop.is_set():
                while len(selector.get_map()) < count and not stop.is_set():
                    opened[0] += _opened(selector, port, first, address)
                for key, _ in selector.select(0.05):
                    _ended_if_over(selector, key.fileobj)
            for key in list(selector.get_map().values()):
                _ended(selector, key.fileobj)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        while opened[0] < count:
            time.sleep(0.01)
        yield opened
    finally:
        stop.set()
        thread.join()


def _opened(selector: DefaultSelector, port: int, first: bytes, address: str) -> int:
    with suppress(OSError):
        made = socket.create_connection((HERE, port), SECONDS, source_address=(address, 0))
        selector.register(made, EVENT_READ)
        made.sendall(first)
        return 1
    return 0


def _ended_if_over(selector: DefaultSelector, connection: Any) -> None:
    got = b""
    with suppress(OSError):
        got = connection.recv(4096)
    if not got:
        _ended(selector, connection)


def _ended(selector: DefaultSelector, connection: Any) -> None:
    selector.unregister(connection)
    connection.close()


def share(of: Callable[[Target], bool], target: Target, tries: int) -> float:
    """Return the share of tries that succeed."""
    return sum(of(target) for _ in range(tries)) / tries


def cost(
    target: Target, greedy: Callable[[contextlib.ExitStack], None], seconds: float = 8.0
) -> float:
    """Return the largest growth in MB while `greedy` holds what it can."""
    before = target.resident()
    largest = before
    end = time.monotonic() + seconds
    with contextlib.ExitStack() as stack:
        thread = threading.Thread(target=greedy, args=(stack,))
        thread.start()
        while time.monotonic() < end or thread.is_alive():
            largest = max(largest, target.resident())
            time.sleep(0.02)
    return round((largest - before) / 1e6, 1)


def without_token(target: Target) -> Callable[[contextlib.ExitStack], None]:
    """Return a client that holds first messages, and heads and bodies, as large as it may."""

    def greedy(stack: contextlib.ExitStack) -> None:
        for number in range(CONNECTIONS):
            first = HUNG + bytes(60_000)
            if number % 2:
                first = SILENT
            with suppress(OSError):
                made = socket.create_connection((HERE, target.port), SECONDS)
                stack.callback(made.close)
                made.sendall(first)
                if number % 2:
                    made.recv(4096)
                    made.sendall(PARTIAL_FRAME + bytes(300_000))

    return greedy


def with_token(target: Target) -> Callable[[contextlib.ExitStack], None]:
    """Return a client that holds large bodies and messages, and has one computed."""
    line = f"Authorization: Bearer {target.token}\r\n"

    def greedy(stack: contextlib.ExitStack) -> None:
        for number in range(CONNECTIONS):
            first = HUNG.replace(b"Content-Length: 1000000", b"Content-Length: 16000000")
            if number % 4:
                first = SILENT
            first = first.replace(b"Host: localhost\r\n", b"Host: localhost\r\n" + line.encode())
            with suppress(OSError):
                made = socket.create_connection((HERE, target.port), SECONDS)
                made.settimeout(1.0)
                stack.callback(made.close)
                made.sendall(first)
                if number % 4:
                    made.recv(4096)
                    made.sendall(PARTIAL_FRAME + bytes(1_000_000))
                else:
                    made.sendall(bytes(15_000_000))
            if number % 16 == 0:
                _ask_much(target)

    return greedy


def _ask_much(target: Target) -> None:
    """Have as many windows computed, in numbers as long, as one request may have."""
    count, samples, channels = 512, 128, 9
    numbers = ",".join(["0.12345678"] * (count * samples * channels))
    tensor = f'"name":"windows","datatype":"FP32","shape":[{count},{samples},{channels}]'
    body = f'{{"inputs":[{{{tensor},"data":[{numbers}]}}]}}'
    connection = http.client.HTTPConnection(HERE, target.port, timeout=SECONDS)
    with suppress(OSError, http.client.HTTPException):
        connection.request("POST", "/v2/models/har/infer", body, target.headers)
        connection.getresponse().read()
    connection.close()


def rows(target: Target, tries: int, seconds: float) -> list[dict[str, Any]]:
    """Return a row for each flood from the honest clients' address and from another one."""
    found: list[dict[str, Any]] = []
    begins(target)  # the first session imports its filters
    for name, first in FLOODS.items():
        for address in (HERE, ELSEWHERE):
            began = time.monotonic()
            with flooded(target.port, first, address) as opened:
                row = {
                    "what": name,
                    "from": address,
                    "sessions": share(begins, target, tries),
                    "requests": share(is_answered, target, tries),
                }
                row["opened_per_second"] = round(opened[0] / (time.monotonic() - began))
            found.append(row)
            tell(row)
    for name, greedy in (("without token", without_token), ("one token", with_token)):
        found.append({"what": name, "megabytes": cost(target, greedy(target), seconds)})
        tell(found[-1])
    return found


def summarize(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the least share of sessions that began, and the memory of each client."""
    shares = [row["sessions"] for row in found if "sessions" in row]
    costs = {row["what"]: row["megabytes"] for row in found if "megabytes" in row}
    return {"least_share_of_sessions": min(shares), "megabytes": costs}


def main() -> None:
    """Measure, and print the object."""
    parser = arguments("service_floods", (__doc__ or "").splitlines()[0])
    parser.add_argument("--model", type=Path, metavar="EXPORT")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pscluster-benchmark-") as folder:
        model = given.model or exported(Path(folder), ["onnx"])[0]
        state = Path(folder, "state")
        words = ("-m", "recognise.service", f"--state={state}", "--port=0", f"--model={model}")
        with subprocess.Popen(
            [sys.executable, *words], stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                assert process.stdout is not None
                line = process.stdout.readline()
                port = int(line.partition(f"http://{HERE}:")[2].split()[0])
                token = Path(state, "token").read_text().strip()
                found = rows(Target(port, token, process.pid), *SIZES[given.size])
            finally:
                process.terminate()
    publish("service_floods", found, summarize(found), given)


if __name__ == "__main__":
    main()
