"""Role processes for the engine's tests.

Real ones, on free ports, that die with the coordinator that starts them.
"""

import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field

import core.engine.environment  # noqa: F401  (before tensorflow)
from core.engine.runtime import Peers
from core.server.sockets import answers
from tests.core.server.processes import place
from tests.ports import free_ports

READY_SECONDS = 60.0


@dataclass
class Roles:
    """Addresses of a whole cluster, and those of its processes that run."""

    servers: int
    workers: int
    ports: dict[str, int] = field(init=False)
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    stock: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = ["coordinator", *self.server_names, *self.worker_names]
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))

    @property
    def server_names(self) -> list[str]:
        return [f"ps:{task}" for task in range(self.servers)]

    @property
    def worker_names(self) -> list[str]:
        return [f"worker:{task}" for task in range(self.workers)]

    def address(self, name: str) -> str:
        return f"127.0.0.1:{self.ports[name]}"

    @property
    def peers(self) -> Peers:
        return Peers(
            self.address("coordinator"),
            tuple(map(self.address, self.server_names)),
            tuple(map(self.address, self.worker_names)),
        )

    def launch(self, *names: str) -> None:
        """Start these roles and wait for nothing."""
        for name in names:
            role, task = name.split(":")
            flags = place(self.ports[name], free_ports(1)[0], task=int(task))
            words = [*flags, "--peers", str(self.workers), "--die-with-parent"]
            if name in self.stock:
                words += ["--server", "stock"]
            self.running[name] = subprocess.Popen(
                [sys.executable, "-m", f"{role}_node", *words], stderr=subprocess.DEVNULL
            )

    def start(self, *names: str) -> None:
        """Start these roles and wait until each answers."""
        self.launch(*names)
        end = time.monotonic() + READY_SECONDS
        for name in names:
            while not answers("127.0.0.1", self.ports[name], 1.0):
                code = self.running[name].poll()
                if code is not None or time.monotonic() > end:
                    raise RuntimeError(f"{name} did not become ready (exit status {code})")

    def stop(self, *names: str) -> None:
        for name in names:
            self.running[name].send_signal(signal.SIGSTOP)

    def go_on(self, *names: str) -> None:
        for name in names:
            self.running[name].send_signal(signal.SIGCONT)

    def kill(self, name: str) -> None:
        process = self.running.pop(name)
        process.kill()
        process.wait()

    def close(self) -> None:
        for name in list(self.running):
            self.kill(name)
