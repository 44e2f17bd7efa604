"""Role processes for tests: started as a user would, awaited by events."""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
HANG_SECONDS = 100.0
"""Longer than anything takes here: what passes it hangs."""


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, all different."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for holder in sockets:
            holder.bind(("127.0.0.1", 0))
        return [holder.getsockname()[1] for holder in sockets]


@dataclass
class Role:
    """A running role process."""

    process: subprocess.Popen[str]
    port: int
    metrics_port: int

    def output(self) -> str:
        """What it wrote to stdout and stderr, waiting for its end."""
        return self.process.communicate(timeout=HANG_SECONDS)[0]


def command(module: str, flags: Sequence[str]) -> list[str]:
    """Command line of a role."""
    return [sys.executable, "-m", module, *flags]


def launch(
    module: str, flags: Sequence[str], environment: dict[str, str] | None = None, prefix: Sequence[str] = ()
) -> subprocess.Popen[str]:
    """A role process whose output is kept; not waited for. `prefix` is a command that starts commands."""
    return subprocess.Popen(
        [*prefix, *command(module, flags)],
        cwd=PROJECT,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@contextmanager
def running(
    module: str,
    *flags: str,
    task: int = 0,
    host: str = "127.0.0.1",
    ports: Sequence[int] = (),
    prefix: Sequence[str] = (),
) -> Iterator[Role]:
    """A role that has said READY=1; killed at the end where it still runs."""
    port, metrics_port = ports or free_ports(2)
    where = ["--task", str(task), "--host", host, "--port", str(port), "--metrics-port", str(metrics_port)]
    with notified() as (address, wait):
        process = launch(module, [*where, *flags], {"NOTIFY_SOCKET": address}, prefix)
        try:
            if not wait(process):
                raise AssertionError(f"{module} ended with {process.wait()}: {process.communicate()[0]}")
            yield Role(process, port, metrics_port)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()


@contextmanager
def notified() -> Iterator[tuple[str, "Wait"]]:
    """A socket for $NOTIFY_SOCKET, and what waits until a process has sent READY=1 there."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        address = f"{folder}/notify"
        channel.bind(address)
        yield address, Wait(channel)


class Wait:
    """Waits for READY=1 or for the end of the process, whichever comes first."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        channel.settimeout(0.2)

    def __call__(self, process: "subprocess.Popen[str]") -> bool:
        """Whether the process said that it is ready."""
        for _ in range(int(HANG_SECONDS / 0.2)):
            try:
                if b"READY=1" in self._channel.recv(4096).splitlines():
                    return True
            except TimeoutError:
                if process.poll() is not None:
                    return False
        raise AssertionError(f"neither ready nor ended after {HANG_SECONDS} s")
