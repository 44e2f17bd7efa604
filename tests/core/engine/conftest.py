"""Processes for the tests of what watches over others."""

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from tests.core.engine.played_servers import Process, Server, Start
from tests.habits.leaks import PROJECT


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts Python processes with pipes, and ends them whatever state they are in."""
    started: list[Process] = []
    pipe = subprocess.PIPE

    def begin(*words: str) -> Process:
        command = [sys.executable, *words]
        started.append(
            subprocess.Popen(command, cwd=PROJECT, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        )
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def watchdog_of(start: Start) -> Callable[..., Process]:
    """Starts a watchdog over a process with these limits, and tells it these lines."""

    def begin(coordinator: Process, limits: str, *lines: str) -> Process:
        guard = start("-m", "core.engine.watchdog", str(coordinator.pid), *limits.split())
        assert guard.stdin is not None
        guard.stdin.write("".join(f"{line}\n" for line in lines))
        guard.stdin.flush()
        return guard

    return begin


@pytest.fixture
def server(start: Start) -> Server:
    return Server(start)


@pytest.fixture
def healthy(start: Start) -> Server:
    """A second one."""
    return Server(start)
