"""A cluster of real role processes, and jobs run on it as a user runs them."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from cluster.inventory import Inventory, load
from cluster.inventory.templates import local_inventory
from cluster.server.probe import answers

PROJECT = Path(__file__).resolve().parents[2]
HANG_SECONDS = 300.0
"""Longer than anything takes here: what passes it hangs."""
SMALL = ("jobs.train.model.hidden=16", "jobs.train.model.n_stacked_layers=1", "jobs.train.batch_size=20")
"""A network whose step takes milliseconds."""


@dataclass
class Done:
    """A job that ended."""

    code: int
    output: str
    errors: str
    folder: Path | None

    @property
    def result(self) -> dict[str, Any]:
        assert self.folder is not None, self.errors
        content: dict[str, Any] = json.loads((self.folder / "result.json").read_text())
        return content

    @property
    def epochs(self) -> list[dict[str, Any]]:
        """The finished epochs, as the lines of the history have them."""
        assert self.folder is not None, self.errors
        lines = [json.loads(line) for line in (self.folder / "history.jsonl").read_text().splitlines()]
        return [line for line in lines if line["event"] == "epoch"]

    @property
    def log(self) -> str:
        assert self.folder is not None, self.errors
        return (self.folder / "coordinator.log").read_text()


@dataclass
class Running:
    """A job that runs. Lines of its standard error are read while it does."""

    process: subprocess.Popen[str]
    runs: Path
    before: set[Path]
    resumed: Path | None = None
    lines: list[str] = field(default_factory=list)

    def until(self, words: str) -> str:
        """The first line on its standard error that has these words, awaited."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if words in line:
                return line
        raise AssertionError(f"ended without {words!r}: {''.join(self.lines)}")

    def until_it_listens(self) -> None:
        """Until SIGTERM, which no Python process handles by itself, would be heard."""
        caught = 0
        while not caught >> (signal.SIGTERM - 1) & 1:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.01)
                raise AssertionError(f"ended at once: {self.end().errors}")
            status = Path(f"/proc/{self.process.pid}/status").read_text()
            caught = int(status.partition("SigCgt:")[2].split()[0], 16)

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def end(self) -> Done:
        output, errors = self.process.communicate(timeout=HANG_SECONDS)
        new = sorted(set(self.runs.glob("*-*/")) - self.before) if self.runs.is_dir() else []
        assert len(new) <= (self.resumed is None)
        return Done(self.process.returncode, output, "".join(self.lines) + errors, new[0] if new else self.resumed)

    def folder(self) -> Path | None:
        """The run's folder, once it is there."""
        return next(iter(set(self.runs.glob("*-*/")) - self.before), None)

    def kill(self) -> Path:
        """SIGKILL; the folder that is left of the run."""
        self.process.kill()
        folder = self.end().folder
        assert folder is not None
        return folder


@dataclass
class Cluster:
    """Role processes by task name, and the file that describes them."""

    inventory: Inventory
    folder: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def runs(self) -> Path:
        return self.folder / "runs"

    def start(self, *names: str) -> None:
        """Start these roles and wait until each answers."""
        tasks = [task for task in self.inventory.tasks() if task.name in names]
        for task in tasks:
            command = [sys.executable, "-m", f"{task.role}_node", "--inventory", str(self.inventory.path)]
            command += ["--task", str(task.index), "--die-with-parent"]
            with self.log(task.name).open("ab") as stream:
                self.processes[task.name] = subprocess.Popen(command, cwd=PROJECT, stderr=stream)
        end = time.monotonic() + HANG_SECONDS
        for task in tasks:
            while not answers(task.host, task.port, 1.0):
                code = self.processes[task.name].poll()
                if code is not None or time.monotonic() > end:
                    log = self.log(task.name).read_text(errors="replace")[-2000:]
                    raise AssertionError(f"{task.name} is not ready at {task.address} (exit code {code}): {log}")

    def log(self, name: str) -> Path:
        """What a role wrote on its standard error."""
        return self.folder / f"{name.replace(':', '-')}.log"

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def part(self, workers: int, servers: int = 1) -> "Cluster":
        """The same roles through a file that names only the first ones."""
        left, kept = {"- worker:": workers, "- ps:": servers}, []
        for line in self.inventory.path.read_text().splitlines(keepends=True):
            role = next((role for role in left if role in line), None)
            if role is not None:
                left[role] -= 1
            if role is None or left[role] >= 0:
                kept.append(line)
        path = self.folder / f"{workers}-{servers}.yaml"
        path.write_text("".join(kept))
        return Cluster(load(path), self.folder, self.processes)

    def metrics(self) -> dict[str, dict[tuple[str, ...], float]]:
        """What the coordinator exports now: values by sample name and label values, these in
        the order of the labels' names; nothing before it listens.
        """
        address = self.inventory.task("coordinator", 0).metrics_address
        try:
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=5.0) as answer:
                text = answer.read().decode()
        except OSError:
            return {}
        found: dict[str, dict[tuple[str, ...], float]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = tuple(sample.labels[label] for label in sorted(sample.labels))
                found.setdefault(sample.name, {})[labels] = sample.value
        return found

    def metrics_when(self, job: "Running", name: str, enough: float) -> dict[str, dict[tuple[str, ...], float]]:
        """What the coordinator exports once the values of `name` add up to `enough`."""
        end = time.monotonic() + HANG_SECONDS
        while time.monotonic() < end:
            found = self.metrics()
            if sum(found.get(name, {}).values()) >= enough:
                return found
            with contextlib.suppress(subprocess.TimeoutExpired):
                job.process.wait(0.1)
                raise AssertionError(f"ended before {name} reached {enough}: {job.end().errors}")
        raise AssertionError(f"{name} did not reach {enough}")

    @contextmanager
    def begun(
        self,
        job: str,
        *settings: str,
        flags: Sequence[str] = (),
        resumed: Path | None = None,
        prefix: Sequence[str] = (),
        program: str = "cluster",
    ) -> Iterator[Running]:
        """A job that was started, or goes on with the run `resumed`; killed if it still runs at the end.

        `prefix` is a command that starts commands, `program` the module that is the coordinator.
        """
        flags = [*flags, "--resume", str(resumed)] if resumed else flags
        command = [*prefix, sys.executable, "-m", program, job, "--inventory", str(self.inventory.path), *flags]
        for setting in (f"runs={self.runs}", *settings):
            command += ["--set", setting]
        environment = {**os.environ, "XDG_CACHE_HOME": str(self.folder / "cache")}
        environment.pop("TF_CPP_MIN_LOG_LEVEL", None)
        before = set(self.runs.glob("*-*/")) if self.runs.is_dir() else set()
        process = subprocess.Popen(
            command, cwd=PROJECT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            yield Running(process, self.runs, before, resumed)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
            for stream in (process.stdout, process.stderr):
                if stream:
                    stream.close()

    def job(
        self, job: str, *settings: str, flags: Sequence[str] = (), resumed: Path | None = None, program: str = "cluster"
    ) -> Done:
        """Run a job to its end."""
        with self.begun(job, *settings, flags=flags, resumed=resumed, program=program) as running:
            return running.end()


@contextmanager
def cluster_of(workers: int, servers: int = 1, start: Callable[[str], bool] = lambda _: True) -> Iterator[Cluster]:
    """A cluster with those of its roles running that `start` says; all are killed at the end."""
    with tempfile.TemporaryDirectory(prefix="pscluster-jobs-") as temporary:
        path = Path(temporary) / "inventory.yaml"
        path.write_text(local_inventory(workers, servers))
        cluster = Cluster(load(path), Path(temporary))
        names = [task.name for task in cluster.inventory.tasks() if task.role != "coordinator" and start(task.name)]
        try:
            cluster.start(*names)
            yield cluster
        finally:
            for name in list(cluster.processes):
                cluster.kill(name)


def own_recordings(
    path: Path, *, classes: int = 4, channels: int = 6, steps: int = 64, train: int = 400, test: int = 120
) -> Path:
    """An .npz as a user brings it: each class swings at a rate of its own, from four subjects."""
    random = np.random.default_rng(5)

    def windows(count: int) -> tuple[Any, Any]:
        labels = np.arange(count) % classes
        time_steps = np.arange(steps) / steps
        rate = 2 * np.pi * 2.0 * (labels + 1)
        waves = np.sin(rate[:, None] * time_steps + random.uniform(0, 6.28, (count, 1)))
        noise = random.normal(0, 0.3, (count, steps, channels))
        return (waves[:, :, None] * np.arange(1, channels + 1) + noise).astype(np.float32), labels

    x_train, y_train = windows(train)
    x_test, y_test = windows(test)
    subjects = np.arange(train) // classes % 4
    np.savez(path, x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test, subject_train=subjects)
    return path


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        return int(holder.getsockname()[1])
