"""A real Prometheus beside a cluster, started as a person does, and questions to it."""

import base64
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.monitor.ready import USER
from tests.habits import needs
from tests.hang import HANG_SECONDS

FAB = Path(sys.executable).with_name("fab")
PROJECT = Path(__file__).resolve().parents[3]


@dataclass
class Prometheus:
    """A running one, and the header with its password."""

    url: str
    process: subprocess.Popen[str]
    header: Mapping[str, str]

    def ask(self, path: str, **parameters: str) -> Any:
        """What its API answers; AssertionError with its own words if it does not like the
        question."""
        address = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            request = urllib.request.Request(address, headers=dict(self.header))
            with urllib.request.urlopen(request, timeout=HANG_SECONDS) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as problem:
            raise AssertionError(f"{parameters}: {problem.read().decode()}") from None

    def values(self, expression: str, begun: float, ended: float) -> int:
        """How many finite numbers it gives from `begun` to `ended`, looked at each second."""
        found = self.ask(
            "query_range", query=expression, start=f"{begun:.3f}", end=f"{ended:.3f}", step="1"
        )
        numbers = [float(value) for series in found["result"] for _, value in series["values"]]
        return sum(map(math.isfinite, numbers))

    def until(self, expression: str) -> None:
        """Until it gives something, awaited."""
        end = time.monotonic() + HANG_SECONDS
        while not self.ask("query", query=expression)["result"]:
            assert time.monotonic() < end, f"nothing for {expression}"
            time.sleep(0.2)


def basic(password: Path) -> Mapping[str, str]:
    """The header that proves the password of a file."""
    words = f"{USER}:{password.read_text().strip()}"
    return {"Authorization": f"Basic {base64.b64encode(words.encode()).decode()}"}


def with_programs() -> dict[str, str]:
    """Our environment with Prometheus on PATH."""
    return {**os.environ, "PATH": f"{needs.tool('prometheus').parent}:{os.environ['PATH']}"}


@contextmanager
def monitored(inventory: Path, settings: Sequence[str]) -> Iterator[Prometheus]:
    """`fab deploy monitor` until the end, which is a Ctrl-C."""
    words = [str(FAB), "-r", str(PROJECT), "deploy", "monitor", "--inventory", str(inventory)]
    words += [word for setting in settings for word in ("--set", setting)]
    process = subprocess.Popen(
        [*needs.ordinary_account(), *words],
        env=with_programs(),
        cwd=inventory.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        line = next((line for line in process.stdout if line.startswith("Prometheus: ")), None)
        assert line is not None, process.stderr.read()
        file = re.search("password in ([^;]+);", line)
        assert file is not None
        yield Prometheus(line.split()[1], process, basic(inventory.parent / file[1]))
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(HANG_SECONDS)
        process.stdout.close()
        process.stderr.close()


@contextmanager
def recorded(file: Path) -> Iterator[str]:
    """Address of an exporter that says what is in the file."""
    command = [sys.executable, str(Path(__file__).with_name("serve_recorded.py")), str(file)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
