"""Trainings on aarch64 and mixed clusters end with the bits of this machine alone.

`python -m tests.lab_kernel.emulated` runs it where network, mounts and processes are its own.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

from core.server.sockets import answers
from tests.cluster.jobs import cluster as clusters
from tests.cluster.jobs.cluster import PROJECT, Cluster, Done, cluster_of
from tests.cluster.jobs.test_library_here import NETWORKS
from tests.lab.commands import LabError, run

ENTER = Path(__file__).with_name("emulated_files") / "enter"
RECIPE = (
    "jobs.train.epochs=1",
    "jobs.train.validation_subjects=0",
    "jobs.train.batch_size=50",
    "jobs.train.keep_probability=0.9",
)
SINGLE = "jobs.train.mode=single"
SYNC = "jobs.train.mode=sync"
NEEDED = "jobs.train.sync.backup_workers=0"
"""The slow worker computes its parts itself; the other one does not repeat them."""
KILLED = "residual"
LONGER = "jobs.train.epochs=10"
"""Of the training that loses its emulated worker, so that it is not over before."""

clusters.HANG_SECONDS = 1200.0


class Emulated:
    """A cluster, some of whose processes are aarch64 programs."""

    def __init__(self, cluster: Cluster, root: Path, groups: Path) -> None:
        self.cluster = cluster
        self._root = root
        self._groups = groups

    def prefix(self, role: str) -> list[str]:
        """What makes a command of this machine's Python one of the emulated Python."""
        return [str(ENTER), str(self._root), str(self._groups / role), str(self.cluster.folder)]

    def begin(self, name: str) -> None:
        """Start a role as an aarch64 program, in the place of one that may be there."""
        cluster = self.cluster
        if name in cluster.processes:
            cluster.kill(name)
        task = next(task for task in cluster.inventory.tasks() if task.name == name)
        # Not --inventory: reading it takes the emulated Python half a minute more.
        words = ["-m", f"{task.role}_node", "--task", str(task.index), "--host", task.host]
        words += ["--port", str(task.port), "--metrics-port", str(task.metrics_port)]
        words += ["--peers", "4", "--guard", "none"]
        with cluster.log(name).open("ab") as stream:
            cluster.processes[name] = subprocess.Popen(
                [*self.prefix(task.role), sys.executable, *words], cwd=PROJECT, stderr=stream
            )

    def wait(self, name: str) -> None:
        """Wait until the role answers."""
        began = time.monotonic()
        task = next(task for task in self.cluster.inventory.tasks() if task.name == name)
        while not answers(task.host, task.port, 5.0):
            time.sleep(0.2)
            ended = self.cluster.processes[name].poll() is not None
            if ended or time.monotonic() - began > clusters.HANG_SECONDS:
                words = self.cluster.log(name).read_text()[-2000:]
                raise LabError(f"{name} does not answer: {words}")

    def _steps_of(self, worker: str) -> float:
        """How many parts of steps this worker has computed in the training that runs."""
        steps = self.cluster.metrics().get("pscluster_train_steps_total", {})
        return sum(count for labels, count in steps.items() if worker in labels)

    def settings(self, name: str, *words: str) -> list[str]:
        """A small training of a network on the same file everywhere."""
        model = json.dumps({"name": name, **NETWORKS[name]})
        source = f"jobs.train.data.source={self.cluster.mine}"
        return [source, *RECIPE, f"jobs.train.model={model}", *words]

    def trained(
        self, where: str, cluster: Cluster, name: str, *words: str, coordinator: bool = False
    ) -> str:
        """Train to the end; the digest of the parameters. `coordinator`: it is emulated too."""
        prefix: list[str] = []
        if coordinator:
            prefix = self.prefix("coordinator")
        began = time.monotonic()
        done = cluster.job("train", *self.settings(name, *words), code=0, prefix=prefix)
        return said(where, name, done, began)

    def killed(self, cluster: Cluster) -> str:
        """Train on a mixed cluster whose aarch64 worker is killed on the way."""
        began = time.monotonic()
        words = self.settings(KILLED, SYNC, NEEDED, LONGER)
        with cluster.begun("train", *words) as job:
            job.when(lambda: self._steps_of("1"))
            cluster.kill("worker:1")
            done = job.end(0)
        if "worker:1 left" not in done.log:
            raise LabError("the training was over before its worker was killed")
        return said("mixed, a worker killed", KILLED, done, began)


def said(where: str, name: str, done: Done, began: float) -> str:
    """Print a training's digest and time."""
    digest = str(done.result["parameters_sha256"])
    if where.startswith("mixed") and done.result["workers"] != 2:
        raise LabError(f"{name}: expected two workers, got {done.result['workers']}")
    print(f"{name}, {where}: {digest} after {time.monotonic() - began:.0f} s", flush=True)
    return digest


def compare(root: Path, groups: Path) -> None:
    """Train each network alone and on the clusters, and one through a killed worker.

    Raises LabError where the bits are not those of this machine alone.
    """
    run("ip", "link", "set", "lo", "up")
    with cluster_of(2, 1, start=False) as cluster:
        emulated = Emulated(cluster, root, groups)
        emulated.begin("worker:1")
        cluster.start("ps:0", "worker:0")
        part = cluster.part(1, 1)
        single = {name: emulated.trained("x86_64, single", part, name, SINGLE) for name in NETWORKS}
        longer = emulated.trained("x86_64, single, longer", part, KILLED, SINGLE, LONGER)
        emulated.wait("worker:1")
        for name, digest in single.items():
            equal(digest, emulated.trained("mixed", cluster, name, SYNC, NEEDED))
        equal(longer, emulated.killed(cluster))
        emulated.begin("ps:0")
        emulated.begin("worker:0")
        emulated.wait("ps:0")
        emulated.wait("worker:0")
        for name, digest in single.items():
            equal(digest, emulated.trained("aarch64, x86_64 coordinates", part, name, SYNC))
        # The shipped network, whose statistics the coordinator measures.
        whole = emulated.trained("aarch64", part, "hybrid", SYNC, coordinator=True)
        equal(single["hybrid"], whole)


def equal(expected: str, digest: str) -> None:
    """Raise LabError where they differ."""
    if digest != expected:
        raise LabError(f"expected the bits {expected}, got {digest}")


if __name__ == "__main__":
    try:
        compare(Path(sys.argv[1]), Path(sys.argv[2]))
    except LabError as problem:
        print(f"bits: {problem}", file=sys.stderr)
        sys.exit(1)
