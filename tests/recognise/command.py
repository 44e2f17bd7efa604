"""The command `python -m recognise` in the tests, and recordings as its text."""

import json
import os
import subprocess
import sys
from collections.abc import Callable

import numpy as np

from tests.hang import HANG_SECONDS
from tests.recognise.readings import Readings, walk

Done = subprocess.CompletedProcess[str]
Here = Callable[..., Done]


def recognise(
    environment: dict[str, str], *words: object, given: str = "", stdout: int = subprocess.PIPE
) -> Done:
    """Run the command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "recognise", *map(str, words)],
        env=environment,
        input=given,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=HANG_SECONDS,
        cwd=environment["PYTHONPATH"].split(os.pathsep)[0],
    )


def still_then_walking(count: int = 1000) -> Readings:
    readings = walk(count)
    readings.acceleration[: count // 2] = [0.0, 0.0, 1.0]
    return readings


def text(readings: Readings, header: str = "") -> str:
    rows = np.concatenate(
        [readings.times[:, None], readings.acceleration, readings.rotation], axis=1
    )
    return header + "".join(",".join(f"{value:.6f}" for value in row) + "\n" for row in rows)


def events(done: Done) -> list[dict[str, object]]:
    return [json.loads(line) for line in done.stdout.splitlines()]
