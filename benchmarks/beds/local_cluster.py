"""A cluster of real role processes on this machine, for the length of a measurement."""

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.inventory import Inventory, load
from core.inventory.templates import local_inventory
from core.server.probe import answers

READY_SECONDS = 300.0
"""A stock server imports TensorFlow first: 80 s and more where ten processes compete for a core
(measured)."""

_choosing = threading.Lock()
_given: set[int] = set()


@dataclass
class LocalCluster:
    """The cluster's inventory, its role processes by task name, and the folder of its runs."""

    inventory: Inventory
    processes: dict[str, subprocess.Popen[bytes]]
    folder: Path

    def job(
        self,
        name: str,
        settings: Sequence[str] = (),
        started: Callable[[int], None] = lambda _: None,
    ) -> dict[str, Any]:
        """Run a job to its end; its result. See `coordinate`."""
        flags = ["--json", "--quiet"]
        for setting in (f"runs={self.folder / 'runs'}", *settings):
            flags += ["--set", setting]
        return self.coordinate("cluster", [name], flags, started)

    def coordinate(
        self,
        module: str,
        names: Sequence[str],
        flags: Sequence[str],
        started: Callable[[int], None] = lambda _: None,
        deadline_seconds: float | None = None,
    ) -> dict[str, Any]:
        """Run `python -m module *names --inventory ... *flags` to its end.

        The JSON object it prints.

        `started` is given its process id. Raises RuntimeError with its last words if it fails, or
        if it is not done by the deadline.
        """
        command = [
            sys.executable,
            "-m",
            module,
            *names,
            "--inventory",
            str(self.inventory.path),
            *flags,
        ]
        what = " ".join([module, *names])
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            started(process.pid)
            try:
                output, errors = process.communicate(timeout=deadline_seconds)
            except subprocess.TimeoutExpired:
                raise RuntimeError(f"{what} was not done after {deadline_seconds:.0f} s") from None
            finally:
                process.kill()
        if process.returncode:
            raise RuntimeError(f"{what} ended with status {process.returncode}: {errors[-2000:]}")
        result: dict[str, Any] = json.loads(output)
        return result


@contextmanager
def local_cluster(
    workers: int = 2, servers: int = 1, server: str = "lean"
) -> Iterator[LocalCluster]:
    """Start the roles, wait until each answers, end them afterwards. `server` is lean or stock."""
    with tempfile.TemporaryDirectory(prefix="pscluster-benchmark-") as temporary:
        folder = Path(temporary)
        path = folder / "inventory.yaml"
        inventory = _inventory(path, workers, servers)
        processes: dict[str, subprocess.Popen[bytes]] = {}
        try:
            tasks = [*inventory.of_role("ps"), *inventory.of_role("worker")]
            for task in tasks:
                command = [sys.executable, "-m", f"{task.role}_node", "--inventory", str(path)]
                command += ["--task", str(task.index), "--server", server, "--die-with-parent"]
                processes[task.name] = subprocess.Popen(command, stderr=subprocess.DEVNULL)
            end = time.monotonic() + READY_SECONDS
            for task in tasks:
                while not answers(task.host, task.port, 1.0):
                    if processes[task.name].poll() is not None or time.monotonic() > end:
                        raise RuntimeError(f"{task.name} did not become ready at {task.address}")
            yield LocalCluster(inventory, processes, folder)
        finally:
            for process in processes.values():
                process.kill()
                process.wait()


def _inventory(path: Path, workers: int, servers: int) -> Inventory:
    """An inventory with ports of its own: those of a coordinator stay free until its job begins."""
    with _choosing:
        while True:
            path.write_text(local_inventory(workers, servers))
            inventory = load(path)
            ports = {port for task in inventory.tasks() for port in (task.port, task.metrics_port)}
            if _given.isdisjoint(ports):
                _given.update(ports)
                return inventory
