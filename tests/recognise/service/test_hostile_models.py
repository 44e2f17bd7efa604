"""Models that take all memory or never answer: refused, or ended without the service."""

import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import httpx
import numpy as np
import psutil
import pytest

from core.cage import landlock
from core.ground.errors import UsageError
from deploy.common.project import ROOT, environment_for_any_folder
from recognise.service.limits import Limits
from recognise.service.loading import tried
from tests.deploy.playing import eventually, gone
from tests.habits import needs
from tests.ran import python
from tests.recognise.service import hostile
from tests.recognise.service.exports import export, windows
from tests.recognise.service.raw import post
from tests.recognise.service.running import (
    PATH,
    Service,
    as_json,
    command,
    manage,
    models_of,
    service,
    state_of,
    wait_until_served,
)

POISONED = np.full((1, 8, 3), hostile.POISON, np.float32)
SHORT = Limits(compute_seconds=1.0)


def seconds_of(process: int) -> float:
    """The processor's time that a process took."""
    return psutil.Process(process).cpu_times().user


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda folder: hostile.endless(folder, 1.0), "noise end the model's process (no answer"),
        (lambda folder: hostile.greedy(folder, 600, 1.0), "of noise within 256 MiB: "),
    ],
    ids=["endless", "greedy"],
)
def test_a_model_that_holds_or_takes_too_much_is_refused_before_it_is_served(
    tmp_path: Path, make: Callable[[Path], Path], words: str
) -> None:
    with pytest.raises(UsageError) as caught:
        tried(make(tmp_path / "export"), SHORT)
    assert words in str(caught.value)


def ask(running: Service, given: np.ndarray) -> httpx.Response:
    with running.client() as client:
        return client.post(f"{PATH}/infer", json=as_json(given), timeout=60)


def answers(running: Service) -> bool:
    found = ask(running, windows(1))
    return found.status_code == 200 and found.json()["outputs"][0]["shape"] == [1, 2]


def killed(running: Service) -> None:
    latest = models_of(running.process.pid)[-1].pid
    os.kill(latest, signal.SIGKILL)
    eventually(partial(gone, latest), "its end")


def killed_twice(running: Service) -> None:
    for _ in range(2):
        killed(running)
        eventually(lambda: answers(running), "an answer")


def test_only_a_promoted_version_is_taken_back_when_its_process_ends_twice(tmp_path: Path) -> None:
    """One that the service began with, or that it went back to, has served before."""

    def promote(factor: int) -> None:
        export(tmp_path / "export", factor)
        assert manage(tmp_path, "promote", "--model", str(tmp_path / "export")).returncode == 0

    promote(1)
    promote(2)
    with service(tmp_path) as running:
        killed_twice(running)
        assert running.served == 2
        promote(3)
        wait_until_served(running, 3)
        killed_twice(running)
        assert running.served == 2
        killed_twice(running)
        assert running.served == 2
        assert running.metrics()['takeovers_total{result="taken_back"}'] == 1


def test_what_a_window_asks_for_beyond_the_limit_is_an_answer_and_not_the_end(
    tmp_path: Path,
) -> None:
    model = hostile.greedy(tmp_path / "export", 600)
    with service(tmp_path, "--model", str(model)) as running:
        before = models_of(running.process.pid)
        found = ask(running, POISONED)
        assert found.status_code == 500
        assert answers(running)
        assert models_of(running.process.pid) == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_the_service_and_a_model_that_never_answers(
    tmp_path: Path, number: signal.Signals
) -> None:
    model = hostile.endless(tmp_path / "export")
    with subprocess.Popen(
        command(state_of(tmp_path), "--no-token", "--model", str(model)),
        env=environment_for_any_folder(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline().partition("http://127.0.0.1:")[2].split()[0])
        (computing,) = models_of(process.pid)
        worker = computing.pid
        body = json.dumps(as_json(POISONED)).encode()
        with socket.create_connection(("127.0.0.1", port)) as connection:
            spent = seconds_of(worker) + 0.2
            connection.sendall(post(f"{PATH}/infer", "", body))
            eventually(lambda: seconds_of(worker) > spent, "the model to compute")
            process.send_signal(number)
            assert process.wait(30) == (-number if number == signal.SIGKILL else 0)
    eventually(lambda: gone(worker), "the end of the model's process")


CAGED = """
import os, socket, sys
from recognise.service.worker.__main__ import _give_up_rights
_give_up_rights(256 << 20)
tried = {
    "read": lambda: open(sys.argv[1]),
    "list": lambda: os.listdir("/var"),
    "checkout": lambda: os.listdir(sys.argv[3]),
    "environment": lambda: open(f"/proc/{os.getppid()}/environ"),
    "write": lambda: open(sys.argv[2], "w"),
    "connect": lambda: socket.socket(),
    "program": lambda: os.execv("/bin/true", ["true"]),
    "signal": lambda: os.kill(os.getppid(), 0),
    "account": lambda: os.setuid(0),
}
for name, attempt in tried.items():
    try:
        attempt()
    except PermissionError:
        print(name, end=" ")
"""


def test_a_model_s_process_reads_its_packages_and_nothing_else(tmp_path: Path) -> None:
    needs.cage(landlock.SCOPED)
    (tmp_path / "token").write_text("secret")
    said = python("-c", CAGED, str(tmp_path / "token"), str(tmp_path / "written"), str(ROOT))
    wanted = "read list checkout environment write connect program signal "
    assert said in (wanted, f"{wanted}account ")
