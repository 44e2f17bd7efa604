"""A service by number of live sessions at 50 Hz, and its requests beside a plain loop over the model.

`python -m benchmarks.service --model EXPORT` starts one service process. Each session sends a message of ten readings
five times a second, as a phone does, at a moment of its own. Its latency is the client's: from the message with the
last reading of a window to the label. It does so on the bare host and with 10 % of a core (cgroup v1, about a Pi 3);
the clients have the rest of the machine. A request of `infer` is one window as a binary tensor, on a connection that
stays open; the loop calls the same model in the same runtime, without a service.

Needs root for the cgroup; `--places host` needs none.
"""

import asyncio
import contextlib
import http.client
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from websockets.asyncio.client import connect

from benchmarks.beds.cpu_quota import enter, slow_places, why_not
from benchmarks.report import arguments, publish
from cluster.exported import open_model

SESSIONS, QUICK_SESSIONS = (1, 10, 20, 50, 100), (1, 20)
HZ, READINGS = 50.0, 10
SECONDS, QUICK_SECONDS = 30.0, 8.0
WARM_SECONDS = 4.0
"""Labels before that count nowhere: a window takes 2.6 s to fill, and the first ones warm the caches."""
REQUESTS, QUICK_REQUESTS = 500, 100
CLIENTS = (1, 4)
SHARE = 0.1
_TICKS = os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def service(model: Path) -> Iterator[tuple[int, int]]:
    """A service process: its port and its id."""
    with tempfile.TemporaryDirectory(prefix="pscluster-benchmark-") as folder:
        command = [sys.executable, "-m", "recognise.service", "--state", folder, "--port", "0", "--no-token"]
        with subprocess.Popen([*command, "--model", str(model)], stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                line = process.stdout.readline()
                yield int(line.partition("http://")[2].partition(" ")[0].rpartition(":")[2]), process.pid
            finally:
                process.terminate()


def walk(count: int) -> tuple[list[float], list[list[float]], list[list[float]]]:
    """Invented readings: times, acceleration in g and rotation in rad/s."""
    chance = np.random.default_rng(0)
    times = np.arange(count) / HZ
    stride = np.sin(2 * np.pi * 2.0 * times)[:, np.newaxis] * [0.3, 0.1, 0.2]
    acceleration = np.array([0.0, 0.0, 1.0]) + stride + chance.normal(0, 0.05, (count, 3))
    rotation = chance.normal(0, 0.5, (count, 3))
    return times.tolist(), acceleration.round(5).tolist(), rotation.round(5).tolist()


class Sessions:
    """Sessions against one service, and what they saw."""

    def __init__(self, port: int, seconds: float) -> None:
        self._port = port
        times, acceleration, rotation = walk(int((seconds + WARM_SECONDS) * HZ) // READINGS * READINGS)
        self._messages = [
            json.dumps({
                "times": times[at : at + READINGS],
                "acceleration": acceleration[at : at + READINGS],
                "rotation": rotation[at : at + READINGS],
            })
            for at in range(0, len(times), READINGS)
        ]  # fmt: skip
        self.seen: list[float] = []
        self.said: list[float] = []
        self.refused = ""
        self.late = 0.0
        """By how much the clients themselves were late, at worst."""

    async def run(self, count: int) -> None:
        """So many at once, to their end."""
        chance = random.Random(0)
        await asyncio.gather(*(self._one(chance.uniform(0.0, 64 / HZ)) for _ in range(count)))

    async def _one(self, offset: float) -> None:
        async with connect(f"ws://127.0.0.1:{self._port}/v1/stream", compression=None, proxy=None) as connection:
            await connection.send('{"schema": 1}')
            ready = json.loads(await connection.recv())
            wanted = 1 + (len(self._messages) * READINGS - ready["window_steps"]) // ready["hop"]
            sent: list[float] = []
            hearing = asyncio.create_task(self._hear(connection, sent, wanted))
            begin = time.perf_counter() + offset
            for number, message in enumerate(self._messages):
                due = begin + number * READINGS / HZ
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                sent.append(time.perf_counter())
                self.late = max(self.late, sent[-1] - due)
                if hearing.done():
                    break
                await connection.send(message)
            await hearing

    async def _hear(self, connection: Any, sent: list[float], wanted: int) -> None:
        labels = 0
        while labels < wanted:
            event = json.loads(await connection.recv())
            if event["event"] == "refused":
                self.refused = event["error"]
                return
            if event["event"] != "label":
                continue
            labels += 1
            if event["at"] > WARM_SECONDS:
                self.seen.append(1000 * (time.perf_counter() - sent[round(event["at"] * HZ) // READINGS]))
                self.said.append(event["latency_ms"])


async def first_session(port: int) -> None:
    """A session that ends at once: with the first one the service imports what all of them need."""
    async with connect(f"ws://127.0.0.1:{port}/v1/stream", compression=None, proxy=None) as connection:
        await connection.send('{"schema": 1}')
        await connection.recv()


def live(model: Path, place: str, count: int, seconds: float) -> dict[str, Any]:
    """A row: so many sessions in a service of their own."""
    with service(model) as (port, process), contextlib.ExitStack() as stack:
        asyncio.run(first_session(port))
        if place != "host":
            (group,) = stack.enter_context(slow_places(1, SHARE))
            enter(group, process)
        sessions = Sessions(port, seconds)
        before, began = _processor_seconds(process), time.perf_counter()
        asyncio.run(sessions.run(count))
        used = (_processor_seconds(process) - before) / (time.perf_counter() - began)
        if sessions.refused:
            print(f"{place}, {count} sessions: refused: {sessions.refused}", file=sys.stderr, flush=True)
            return {"what": "sessions", "place": place, "sessions": count, "refused": sessions.refused}
        row = {
            "what": "sessions",
            "place": place,
            "sessions": count,
            "labels": len(sessions.seen),
            "p50_ms": round(statistics.median(sessions.seen), 2),
            "p99_ms": round(float(np.percentile(sessions.seen, 99)), 2),
            "service_p99_ms": round(float(np.percentile(sessions.said, 99)), 2),
            "service_core_share": round(used, 4),
            "client_late_ms": round(1000 * sessions.late, 1),
            "resident_mb": round(_resident_megabytes(process), 1),
        }
    print(
        f"{place}, {count} sessions: p50 {row['p50_ms']} ms, p99 {row['p99_ms']} ms, {100 * used:.1f} % of a core",
        file=sys.stderr, flush=True,
    )  # fmt: skip
    return row


def infer(model: Path, requests: int) -> list[dict[str, Any]]:
    """Rows: one window at a time, in a loop over the model, and in requests of one client and of several."""
    opened = open_model(model)
    windows = np.random.default_rng(0).normal(0, 0.3, (1, *opened.description.input.shape)).astype(np.float32)
    times = [_timed(lambda: opened.logits(windows)) for _ in range(requests + 20)][20:]
    rows = [_request_row("loop", 1, times, sum(times))]
    tensor = {"name": "windows", "shape": list(windows.shape), "datatype": "FP32",
              "parameters": {"binary_data_size": windows.nbytes}}  # fmt: skip
    head = json.dumps({"inputs": [tensor], "outputs": [{"name": "logits", "parameters": {"binary_data": True}}]})
    body = head.encode() + windows.tobytes()

    def ask(port: int, count: int) -> list[float]:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        headers = {"Inference-Header-Content-Length": str(len(head))}

        def one() -> None:
            connection.request("POST", "/v2/models/har/infer", body, headers)
            answer = connection.getresponse()
            if (found := answer.read()) and answer.status != 200:
                raise RuntimeError(found.decode())

        found = [_timed(one) for _ in range(count + 20)][20:]
        connection.close()
        return found

    with service(model) as (port, _):
        for clients in CLIENTS:
            with ThreadPoolExecutor(clients) as pool:
                began = time.perf_counter()
                found = [pool.submit(ask, port, requests) for _ in range(clients)]
                times = [seconds for one in found for seconds in one.result()]
                rows.append(_request_row("infer", clients, times, time.perf_counter() - began))
    return rows


def _request_row(what: str, clients: int, times: list[float], seconds: float) -> dict[str, Any]:
    return {
        "what": what,
        "clients": clients,
        "p50_ms": round(1000 * statistics.median(times), 3),
        "p99_ms": round(1000 * float(np.percentile(times, 99)), 3),
        "windows_per_second": round(len(times) / seconds, 1),
    }


def _timed(call: Any) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _processor_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _resident_megabytes(process: int) -> float:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1000 for line in lines if line.startswith("VmRSS:"))


def summarize(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """By place: the p99 by number of sessions, and the most sessions with it below 100 ms."""
    found: dict[str, Any] = {}
    for place in dict.fromkeys(row["place"] for row in rows if row["what"] == "sessions"):
        p99 = {row["sessions"]: row.get("p99_ms", math.inf) for row in rows if row.get("place") == place}
        below = [count for count, value in p99.items() if value < 100.0]
        found[place] = {
            "p99_ms": {str(count): value for count, value in p99.items() if value < math.inf},
            "below_100_ms": max(below, default=0),
        }
    return found


def main() -> int:
    """Measure, and print the object."""
    parser = arguments("service", (__doc__ or "").splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, metavar="EXPORT", help="a folder that `fab export` wrote")
    parser.add_argument("--sessions", nargs="+", type=int, help=f"default {SESSIONS}")
    parser.add_argument("--seconds", type=float, help=f"of each number of sessions; default {SECONDS:g}")
    parser.add_argument("--places", nargs="+", choices=("host", "tenth"), default=("host", "tenth"))
    given = parser.parse_args()
    counts = given.sessions or (QUICK_SESSIONS if given.quick else SESSIONS)
    seconds = given.seconds or (QUICK_SECONDS if given.quick else SECONDS)
    reason = why_not()
    places = [place for place in given.places if place == "host" or not reason]
    if reason and "tenth" in given.places:
        print(f"no tenth of a core: {reason}", file=sys.stderr)
    rows = [live(given.model, place, count, seconds) for place in places for count in counts]
    rows += infer(given.model, QUICK_REQUESTS if given.quick else REQUESTS)
    publish("service", rows, summarize(rows), as_json=given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
