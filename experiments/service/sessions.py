"""Live sessions at 50 Hz against a service, as phones hold them, and what they cost it."""

import asyncio
import json
import os
import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from websockets.asyncio.client import connect

from experiments.service.places import service

HZ = 50.0
READINGS = 10
WARM_SECONDS = 4.0
"""Labels before that count nowhere: a window takes 2.6 s to fill, and the first ones warm the
caches."""
_TICKS = os.sysconf("SC_CLK_TCK")


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
        times, acceleration, rotation = walk(
            int((seconds + WARM_SECONDS) * HZ) // READINGS * READINGS
        )
        self._messages = [
            json.dumps(
                {
                    "times": times[at : at + READINGS],
                    "acceleration": acceleration[at : at + READINGS],
                    "rotation": rotation[at : at + READINGS],
                }
            )
            for at in range(0, len(times), READINGS)
        ]
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
        async with connect(
            f"ws://127.0.0.1:{self._port}/v1/stream", compression=None, proxy=None
        ) as connection:
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
                self.seen.append(
                    1000 * (time.perf_counter() - sent[round(event["at"] * HZ) // READINGS])
                )
                self.said.append(event["latency_ms"])


async def first_session(port: int) -> None:
    """A session that ends at once: with the first one the service imports what all of them need."""
    async with connect(
        f"ws://127.0.0.1:{port}/v1/stream", compression=None, proxy=None
    ) as connection:
        await connection.send('{"schema": 1}')
        await connection.recv()


def live(model: Path, place: str, count: int, seconds: float) -> dict[str, Any]:
    """A row: so many sessions in a service of their own."""
    with service(model, place) as (port, process):
        asyncio.run(first_session(port))
        sessions = Sessions(port, seconds)
        before = _processor_seconds(process)
        began = time.perf_counter()
        asyncio.run(sessions.run(count))
        used = (_processor_seconds(process) - before) / (time.perf_counter() - began)
        if sessions.refused:
            print(
                f"{place}, {count} sessions: refused: {sessions.refused}",
                file=sys.stderr,
                flush=True,
            )
            return {
                "what": "sessions",
                "place": place,
                "sessions": count,
                "refused": sessions.refused,
            }
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
        f"{place}, {count} sessions: p50 {row['p50_ms']} ms, p99 {row['p99_ms']} ms,"
        f" {100 * used:.1f} % of a core",
        file=sys.stderr,
        flush=True,
    )
    return row


def _processor_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _resident_megabytes(process: int) -> float:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1000 for line in lines if line.startswith("VmRSS:"))
