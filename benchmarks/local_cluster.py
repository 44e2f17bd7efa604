"""A cluster of real role processes on this machine, for the length of a measurement."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.inventory import Inventory, load
from cluster.inventory.templates import local_inventory
from cluster.server.probe import answers

READY_SECONDS = 300.0
"""A stock server imports TensorFlow first: 80 s and more where ten processes compete for a core (measured)."""


@dataclass
class LocalCluster:
    """Where the cluster's file and runs are, and its role processes by task name."""

    inventory: Inventory
    processes: dict[str, subprocess.Popen[bytes]]
    folder: Path

    def job(self, name: str, settings: Sequence[str] = ()) -> dict[str, Any]:
        """Run a job to its end; its result. Raises RuntimeError with its last words if it fails."""
        command = [sys.executable, "-m", "cluster", name, "--inventory", str(self.inventory.path), "--json", "--quiet"]
        for setting in (f"runs={self.folder / 'runs'}", *settings):
            command += ["--set", setting]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{name} ended with status {done.returncode}: {done.stderr[-2000:]}")
        result: dict[str, Any] = json.loads(done.stdout)
        return result


@contextmanager
def local_cluster(workers: int = 2, servers: int = 1, server: str = "lean") -> Iterator[LocalCluster]:
    """Start the roles, wait until each answers, end them afterwards. `server` is lean or stock."""
    with tempfile.TemporaryDirectory(prefix="pscluster-benchmark-") as temporary:
        folder = Path(temporary)
        path = folder / "inventory.yaml"
        path.write_text(local_inventory(workers, servers))
        inventory = load(path)
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
