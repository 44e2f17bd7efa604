"""Role processes for the engine's tests: real ones, on free ports, that die with the coordinator that starts them."""

import subprocess
import sys
import time
from dataclasses import dataclass, field

from cluster.inventory.templates import free_ports  # below those the kernel gives to outgoing connections
from cluster.server.probe import answers

READY_SECONDS = 60.0


@dataclass
class Roles:
    """Addresses of a whole cluster, and those of its processes that run."""

    servers: int
    workers: int
    ports: dict[str, int] = field(init=False)
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

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

    def launch(self, *names: str) -> None:
        """Start these roles and wait for nothing."""
        for name in names:
            role, task = name.split(":")
            command = [sys.executable, "-m", f"{role}_node", "--host", "127.0.0.1", "--port", str(self.ports[name])]
            command += ["--metrics-port", str(free_ports(1)[0]), "--task", task, "--peers", str(self.workers)]
            self.running[name] = subprocess.Popen([*command, "--die-with-parent"], stderr=subprocess.DEVNULL)

    def start(self, *names: str) -> None:
        """Start these roles and wait until each answers."""
        self.launch(*names)
        end = time.monotonic() + READY_SECONDS
        for name in names:
            while not answers("127.0.0.1", self.ports[name], 1.0):
                code = self.running[name].poll()
                if code is not None or time.monotonic() > end:
                    raise RuntimeError(f"{name} did not become ready (exit status {code})")

    def kill(self, name: str) -> None:
        process = self.running.pop(name)
        process.kill()
        process.wait()

    def close(self) -> None:
        for name in list(self.running):
            self.kill(name)
