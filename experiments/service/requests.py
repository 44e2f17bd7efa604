"""Requests of one window: closed loops of clients against services or Triton, in turn."""

import contextlib
import http.client
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from core.exported import open_model
from core.exported.description import FILES
from core.inventory.templates import free_ports
from experiments.service.places import START_SECONDS, service

CLIENTS = (1, 4, 16)
PROCESSES = (1, 2, 4)
WARM_REQUESTS = 20


@dataclass
class Contest:
    """Who answers, at which ports; the seconds of each request and of each round."""

    server: str
    place: str
    ports: Sequence[int]
    clients: int
    seconds: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)

    def row(self) -> dict[str, Any]:
        """Medians over the rounds."""
        return {
            "what": "infer",
            "server": self.server,
            "place": self.place,
            "processes": len(self.ports),
            "clients": self.clients,
            "requests": len(self.seconds),
            "p50_ms": round(1000 * statistics.median(self.seconds), 3),
            "p99_ms": round(1000 * float(np.percentile(self.seconds, 99)), 3),
            "windows_per_second": round(statistics.median(self.rates), 1),
            "round_windows_per_second": [round(rate, 1) for rate in self.rates],
        }


def rows(
    model: Path, places: Sequence[str], triton: Path | None, requests: int, rounds: int
) -> list[dict[str, Any]]:
    """A loop over the model; one service in each place; several on the host; Triton.

    All of one table in turn.
    """
    opened = open_model(model)
    windows = (
        np.random.default_rng(0)
        .normal(0, 0.3, (1, *opened.description.input.shape))
        .astype(np.float32)
    )
    loop = Contest("loop", "host", (0,), 1)
    with contextlib.ExitStack() as stack:
        at = {place: stack.enter_context(service(model, place))[0] for place in places}
        more = [stack.enter_context(service(model))[0] for _ in range(max(PROCESSES) - 1)]
        contests = [
            Contest("ours", place, (port,), clients)
            for place, port in at.items()
            for clients in CLIENTS
        ]
        if "host" in at:
            several = [at["host"], *more]
            contests += [
                Contest("ours", "host", several[:count], clients)
                for count in PROCESSES
                if count > 1
                for clients in CLIENTS
                if clients >= count
            ]
        if triton is not None:
            port = stack.enter_context(_triton(triton, model))
            contests += [Contest("triton", "host", (port,), clients) for clients in CLIENTS]
        body, head = _request(windows)
        for one in contests:
            _round(one, body, head, WARM_REQUESTS)
            one.seconds = []
            one.rates = []
        for turn in range(rounds):
            began = time.perf_counter()
            loop.seconds += [_timed(lambda: opened.logits(windows)) for _ in range(requests)]
            loop.rates.append(requests / (time.perf_counter() - began))
            for one in contests if turn % 2 == 0 else reversed(contests):
                _round(one, body, head, requests // 5 if one.place == "tenth" else requests)
                print(f"round {turn + 1}: {one.row()}", file=sys.stderr, flush=True)
    return [one.row() for one in (loop, *contests)]


def _round(one: Contest, body: bytes, head: int, requests: int) -> None:
    """So many requests in all, by the contest's clients side by side, each at one of the ports."""
    share = max(1, requests // one.clients)
    with ThreadPoolExecutor(one.clients) as pool:
        began = time.perf_counter()
        asked = [
            pool.submit(_ask, one.ports[client % len(one.ports)], body, head, share)
            for client in range(one.clients)
        ]
        found = [seconds for each in asked for seconds in each.result()]
    one.seconds += found
    one.rates.append(len(found) / (time.perf_counter() - began))


def _ask(port: int, body: bytes, head: int, count: int) -> list[float]:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    headers = {"Inference-Header-Content-Length": str(head)}

    def one() -> None:
        connection.request("POST", "/v2/models/har/infer", body, headers)
        answer = connection.getresponse()
        if (found := answer.read()) and answer.status != http.client.OK:
            raise RuntimeError(found.decode(errors="replace"))

    try:
        return [_timed(one) for _ in range(count)]
    finally:
        connection.close()


def _request(windows: np.ndarray) -> tuple[bytes, int]:
    """The body of a request with a binary tensor, and the length of its head."""
    tensor = {
        "name": "windows",
        "shape": list(windows.shape),
        "datatype": "FP32",
        "parameters": {"binary_data_size": windows.nbytes},
    }
    asked = {
        "inputs": [tensor],
        "outputs": [{"name": "logits", "parameters": {"binary_data": True}}],
    }
    head = json.dumps(asked).encode()
    return head + windows.tobytes(), len(head)


@contextlib.contextmanager
def _triton(python: Path, model: Path) -> Iterator[int]:
    (port,) = free_ports(1)
    program = Path(__file__).with_name("in_triton.py")
    words = [str(python), str(program), str(model / FILES["onnx"]), str(port)]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            end = time.monotonic() + START_SECONDS
            for line in process.stdout:
                if line.startswith("serving") or time.monotonic() > end:
                    break
            if process.poll() is not None:
                raise RuntimeError(
                    f"{python}: Triton did not start: does it have nvidia-pytriton and onnxruntime?"
                )
            yield port
        finally:
            process.terminate()
            process.wait(START_SECONDS)


def _timed(call: Any) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began
