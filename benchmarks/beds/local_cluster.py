"""A cluster of real role processes for the length of a measurement.

On this machine, or on the emulated machines of `benchmarks.beds.virtual_network`.
"""

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.beds.virtual_network import Machine
from core.ground.accounts import account_for_roles
from core.ground.ports import free_ports
from core.inventory import Inventory, load
from core.inventory.templates import local_inventory
from core.server.rights import prepared_folders
from core.server.sockets import answers

READY_SECONDS = 300.0
"""A stock server imports TensorFlow first: 80 s and more where ten processes compete for a core
(measured)."""

PLAIN_LAYERS = (
    "jobs.train.model={{name: thesis, n_layers_in_highway: 0, n_stacked_layers: 3,"
    " bidirectional: false, hidden: {}}}"
)
"""Three plain layers of so many units, as a setting of a job."""

PROBE = (
    "import sys; from core.server.sockets import answers; print(answers(sys.argv[1],"
    " int(sys.argv[2]), 3.0))"
)
"""A program that prints whether a port answers."""

_choosing = threading.Lock()
_given: set[int] = set()


@dataclass
class LocalCluster:
    """The cluster's inventory, its role processes by task name, and the folder of its runs.

    `prefix` starts the command of a coordinator on its machine.
    """

    inventory: Inventory
    processes: dict[str, subprocess.Popen[bytes]]
    folder: Path
    prefix: tuple[str, ...] = ()

    def of_workers(self, count: int) -> "LocalCluster":
        """Return the same roles through a file that names the first workers alone."""
        lines = self.inventory.path.read_text().splitlines(keepends=True)
        workers = [k for k, line in enumerate(lines) if "worker: {" in line]
        path = self.folder / f"inventory-{count}.yaml"
        path.write_text("".join(line for k, line in enumerate(lines) if k not in workers[count:]))
        return replace(self, inventory=load(path))

    def job(
        self,
        name: str,
        settings: Sequence[str] = (),
        started: Callable[[int], None] = lambda _: None,
    ) -> dict[str, Any]:
        """Run a job to its end; its result. See `coordinate`."""
        return self.coordinate("cluster", [name], self.flags(settings), started)

    def flags(self, settings: Sequence[str]) -> list[str]:
        """Return the flags of a job with these settings, whose run lies in the cluster's folder."""
        all_settings = (f"runs={self.folder / 'runs'}", *settings)
        return ["--json", "--quiet", *(f"--set={setting}" for setting in all_settings)]

    def about(self, seconds: float, settings: Sequence[str]) -> list[str]:
        """Return the settings with the epochs of a training of about so many seconds.

        A training of one epoch says how many those are.
        """
        pilot = self.job("train", [*settings, "jobs.train.epochs=1"])
        epochs = seconds * pilot["throughput"]["windows_per_second"]
        epochs /= pilot["dataset"]["train_windows"]
        return [*settings, f"jobs.train.epochs={max(2, round(epochs))}"]

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
        command = [*self.prefix, sys.executable, "-m", module, *names]
        command += ["--inventory", str(self.inventory.path), *flags]
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
    workers: int = 2, servers: int = 1, server: str = "lean", machines: Sequence[Machine] = ()
) -> Iterator[LocalCluster]:
    """Start the roles, wait until each answers, end them afterwards. `server` is lean or stock.

    `machines` are those of the coordinator, the servers and the workers, in this order; without
    them all roles are on this one.
    """
    with tempfile.TemporaryDirectory(prefix="pscluster-benchmark-") as temporary:
        folder = Path(temporary)
        path = folder / "inventory.yaml"
        if machines:
            inventory = inventory_over(path, machines, servers)
            reads = ["--reads", prepared_folders(account_for_roles())[-1]]
        else:
            inventory = _inventory(path, workers, servers)
            reads = []
        prefixes = {machine.address: machine.prefix for machine in machines}
        processes: dict[str, subprocess.Popen[bytes]] = {}
        try:
            tasks = [*inventory.of_role("ps"), *inventory.of_role("worker")]
            for task in tasks:
                command = [*prefixes.get(task.host, ()), sys.executable, "-m", f"{task.role}_node"]
                command += ["--inventory", str(path), "--task", str(task.index), *reads]
                command += ["--server", server, "--die-with-parent"]
                processes[task.name] = subprocess.Popen(command, stderr=subprocess.DEVNULL)
            end = time.monotonic() + READY_SECONDS
            for task in tasks:
                while not _answers(prefixes.get(task.host, ()), task.host, task.port):
                    if processes[task.name].poll() is not None or time.monotonic() > end:
                        raise RuntimeError(f"{task.name} did not become ready at {task.address}")
            coordinator = inventory.task("coordinator", 0).host
            yield LocalCluster(inventory, processes, folder, prefixes.get(coordinator, ()))
        finally:
            for process in processes.values():
                process.kill()
                process.wait()


def _answers(prefix: Sequence[str], host: str, port: int) -> bool:
    if not prefix:
        return answers(host, port, 1.0)
    probe = [*prefix, sys.executable, "-c", PROBE, host, str(port)]
    return subprocess.run(probe, check=True, capture_output=True, text=True).stdout == "True\n"


def inventory_over(path: Path, machines: Sequence[Machine], servers: int) -> Inventory:
    """Write the inventory of a coordinator, so many servers, and workers, a machine each."""
    roles = ["coordinator", *["ps"] * servers]
    roles += ["worker"] * (len(machines) - len(roles))
    ports = iter(free_ports(2 * len(machines)))
    lines = ["schema: 1", "cluster: links", "connection: ssh", "nodes:"]
    for number, (role, machine) in enumerate(zip(roles, machines, strict=True)):
        entry = f"[{role}: {{port: {next(ports)}, metrics_port: {next(ports)}}}]"
        lines.append(f"  - {{name: machine{number}, address: {machine.address}, roles: {entry}}}")
    path.write_text("\n".join(lines) + "\n")
    return load(path)


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
