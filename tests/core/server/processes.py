"""Role processes for tests: started as a user would, awaited by events."""

import http.client
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from core.control.client import MARK_HEADER, Answer
from tests import hang
from tests.ports import free_ports

PROJECT = Path(__file__).resolve().parents[3]
HANG_SECONDS = hang.HANG_SECONDS
"""Longer than anything takes here: what passes it hangs."""
Process = subprocess.Popen[str]


def asked(
    port: int,
    path: str,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    host: str = "127.0.0.1",
) -> Answer:
    """The answer to a request of http.client; a POST has our mark."""
    marked = {MARK_HEADER: "1"} if method == "POST" else {}
    connection = http.client.HTTPConnection(host, port, timeout=HANG_SECONDS)
    try:
        connection.request(method, path, body, {**marked, **(headers or {})})
        answer = connection.getresponse()
        return Answer(answer.status, answer.read(), dict(answer.headers))
    finally:
        connection.close()


def python(
    *words: str, said: str = "", environment: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """What `python words...` answers to `said`, in the project's folder."""
    return subprocess.run(
        [sys.executable, *words],
        input=said,
        capture_output=True,
        text=True,
        cwd=PROJECT,
        env={**os.environ, "PYTHONPATH": str(PROJECT), **(environment or {})},
        timeout=HANG_SECONDS,
    )


def place(port: int, metrics_port: int, *, task: int = 0, host: str = "127.0.0.1") -> list[str]:
    """The flags that every role needs."""
    words = f"--task {task} --host {host} --port {port} --metrics-port {metrics_port}"
    return words.split()


@dataclass
class Role:
    """A running role process."""

    process: Process
    port: int
    metrics_port: int

    def ask(self, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
        """Status and text of the answer of its metrics port."""
        answer = asked(self.metrics_port, path, method, headers)
        return answer.status, answer.text

    def output(self) -> str:
        """What it wrote to stdout and stderr, waiting for its end."""
        return self.process.communicate(timeout=HANG_SECONDS)[0]


def command(module: str, flags: Sequence[str]) -> list[str]:
    """Command line of a role."""
    return [sys.executable, "-m", module, *flags]


def launch(
    module: str,
    flags: Sequence[str],
    environment: Mapping[str, str] | None = None,
    prefix: Sequence[str] = (),
) -> Process:
    """A role process whose output is kept; not waited for.

    `prefix` is a command that starts commands.
    """
    return subprocess.Popen(
        [*prefix, *command(module, flags)],
        cwd=PROJECT,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def ended(
    module: str,
    *flags: str,
    environment: Mapping[str, str] | None = None,
    prefix: Sequence[str] = (),
) -> tuple[int, list[str]]:
    """Exit code and lines of a role that is not to start."""
    process = launch(module, flags, environment, prefix)
    output = process.communicate(timeout=HANG_SECONDS)[0]
    return process.returncode, output.splitlines()


@contextmanager
def ready(
    module: str, flags: Sequence[str], port: int, metrics_port: int, prefix: Sequence[str] = ()
) -> Iterator[Role]:
    """A role that has said READY=1; killed at the end where it still runs."""
    with notified() as (address, wait):
        process = launch(module, flags, {"NOTIFY_SOCKET": address}, prefix)
        try:
            if not wait(process):
                raise AssertionError(f"{module} ended: {process.communicate()[0]}")
            yield Role(process, port, metrics_port)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()


@contextmanager
def running(
    module: str,
    *flags: str,
    task: int = 0,
    host: str = "127.0.0.1",
    ports: Sequence[int] = (),
    prefix: Sequence[str] = (),
) -> Iterator[Role]:
    """A role from flags alone that has said READY=1."""
    port, metrics_port = ports or free_ports(2)
    words = [*place(port, metrics_port, task=task, host=host), *flags]
    with ready(module, words, port, metrics_port, prefix) as role:
        yield role


@dataclass
class Child:
    """A role that is ready and whose parent is a shell."""

    parent: Process
    pid: int
    port: int
    descriptor: int

    def ends(self, seconds: float = HANG_SECONDS) -> bool:
        """Whether it ends within the time."""
        return bool(select.select([self.descriptor], [], [], seconds)[0])


@contextmanager
def child_of_a_shell(module: str, *flags: str) -> Iterator[Child]:
    """A role that is to die with its parent, and is ready; both are gone afterwards."""
    port, metrics_port = free_ports(2)
    role = command(module, [*place(port, metrics_port), *flags, "--die-with-parent"])
    with (
        notified() as (address, wait),
        subprocess.Popen(
            ["sh", "-c", '"$@" & echo $!; wait', "sh", *role],
            cwd=PROJECT,
            env={**os.environ, "NOTIFY_SOCKET": address},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as parent,
    ):
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        child = Child(parent, pid, port, os.pidfd_open(pid))
        try:
            assert wait(parent)
            yield child
        finally:
            parent.kill()
            if not child.ends(0):
                signal.pidfd_send_signal(child.descriptor, signal.SIGKILL)
            os.close(child.descriptor)


@contextmanager
def notified() -> Iterator[tuple[str, "Wait"]]:
    """A socket for $NOTIFY_SOCKET, and what waits until a process has sent READY=1 there."""
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel,
    ):
        channel.bind(f"{folder}/notify")
        yield channel.getsockname(), Wait(channel)


class Wait:
    """Waits for a word or for the end of the process, whichever comes first."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self.heard: list[str] = []
        channel.settimeout(0.2)

    def __call__(self, process: Process, word: str = "READY=1") -> bool:
        """Whether the process says this word from now on; `heard` keeps all that it said."""
        for _ in range(int(HANG_SECONDS / 0.2)):
            try:
                lines = self._channel.recv(4096).decode().splitlines()
            except TimeoutError:
                if process.poll() is not None:
                    return False
                continue
            self.heard += lines
            if word in lines:
                return True
        raise AssertionError(f"neither {word} nor ended after {HANG_SECONDS} s")
