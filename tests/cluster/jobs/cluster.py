"""A cluster of real role processes, and jobs run on it as a user runs them."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import psutil
from prometheus_client.parser import text_string_to_metric_families

from cluster.jobs.run_logs import LET_GO
from core.inventory import Inventory, load
from core.inventory.templates import local_inventory
from core.server.sockets import answers
from tests import hang

PROJECT = Path(__file__).resolve().parents[3]
HANG_SECONDS = hang.HANG_SECONDS
"""Longer than anything takes here: what passes it hangs."""
SMALL = (
    "jobs.train.model.hidden=16",
    "jobs.train.model.n_stacked_layers=1",
    "jobs.train.batch_size=20",
)
"""A network whose step takes milliseconds."""
Found = TypeVar("Found")
Samples = dict[str, dict[tuple[str, ...], float]]
"""Values of metrics, by name and by the values of the labels in the order of their names."""


@dataclass
class Done:
    """A job that ended."""

    code: int
    output: str
    errors: str
    folder: Path | None

    @property
    def run(self) -> Path:
        """The folder, which is there."""
        assert self.folder is not None, self.errors
        return self.folder

    @property
    def result(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.run / "result.json").read_text())
        return content

    @property
    def updates(self) -> int:
        """How many were scheduled, each of which was applied once."""
        updates = self.result["updates"]
        assert updates["applied"] == updates["scheduled"]
        return int(updates["scheduled"])

    @property
    def epochs(self) -> list[dict[str, Any]]:
        """The finished epochs, as the lines of the history have them."""
        lines = map(json.loads, (self.run / "history.jsonl").read_text().splitlines())
        return [line for line in lines if line["event"] == "epoch"]

    @property
    def best(self) -> dict[str, Any]:
        """The epoch of the highest validation accuracy, of equal ones that of the lowest loss."""
        epochs = sorted(self.epochs, key=lambda event: float(event["validation"]["loss"]))
        return max(epochs, key=lambda event: float(event["validation"]["accuracy"]))

    @property
    def log(self) -> str:
        return (self.run / "coordinator.log").read_text()


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

    def when(self, look: Callable[[], Found | None]) -> Found:
        """What `look` finds, once it finds something: before the job ends."""
        end = time.monotonic() + HANG_SECONDS
        while not (found := look()):
            assert time.monotonic() < end, "it never came"
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.02)
                raise AssertionError(f"ended before it came: {self.end().errors}")
        return found

    def until_held(self, update: int) -> None:
        """Until it waits where `--chaos` has `hold:` this update."""
        self.until(f"chaos: hold after {update} updates")

    def let_go(self, update: int) -> None:
        """Let it go on from there."""
        folder = self.folder()
        assert folder is not None
        (folder / LET_GO.format(update)).touch()

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def cancelled(self) -> Done:
        """The job, ended by Ctrl-C."""
        self.interrupt()
        done = self.end(130)
        assert done.result["status"] == "cancelled"
        return done

    def end(self, code: int | None = None) -> Done:
        """The job when it is over; `code` is the exit status that it must have."""
        output, errors = self.process.communicate(timeout=HANG_SECONDS)
        new = sorted(set(self.runs.glob("*-*/")) - self.before)
        assert len(new) <= (self.resumed is None)
        assert code in (None, self.process.returncode), "".join(self.lines) + errors
        return Done(
            self.process.returncode,
            output,
            "".join(self.lines) + errors,
            new[0] if new else self.resumed,
        )

    def folder(self) -> Path | None:
        """The run's folder, once it is there."""
        return next(iter(set(self.runs.glob("*-*/")) - self.before), self.resumed)

    def kill(self) -> Path:
        """SIGKILL; the folder that is left of the run."""
        self.process.kill()
        return self.end().run


@dataclass
class Cluster:
    """Role processes by task name, and the file that describes them."""

    inventory: Inventory
    folder: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def runs(self) -> Path:
        return self.folder / "runs"

    @property
    def environment(self) -> dict[str, str]:
        """Jobs write prepared windows below it, and roles read them there."""
        return {**os.environ, "XDG_CACHE_HOME": str(self.folder / "cache")}

    @property
    def mine(self) -> Path:
        """Somebody's own recordings."""
        path = self.folder / "mine.npz"
        if not path.exists():
            own_recordings(path)
        return path

    def settings(self, *words: str) -> tuple[str, ...]:
        """A small training on these recordings; words without `jobs.` are of `train`."""
        return tuple(
            word if word.startswith("jobs.") else f"jobs.train.{word}"
            for word in (f"data.source={self.mine}", *SMALL, *words)
        )

    def start(self, *names: str) -> None:
        """Start these roles and wait until each answers."""
        tasks = [task for task in self.inventory.tasks() if task.name in names]
        for task in tasks:
            words = [f"{task.role}_node", "--inventory", str(self.inventory.path)]
            words += ["--task", str(task.index), "--die-with-parent"]
            with self.log(task.name).open("ab") as stream:
                self.processes[task.name] = subprocess.Popen(
                    [sys.executable, "-m", *words],
                    cwd=PROJECT,
                    env=self.environment,
                    stderr=stream,
                )
        end = time.monotonic() + HANG_SECONDS
        for task in tasks:
            while not answers(task.host, task.port, 1.0):
                code = self.processes[task.name].poll()
                log = self.log(task.name).read_text(errors="replace")[-2000:]
                assert code is None, f"{task.name} ended with exit code {code}: {log}"
                assert time.monotonic() < end, f"{task.name} at {task.address} hangs: {log}"

    def log(self, name: str) -> Path:
        """What a role wrote on its standard error."""
        return self.folder / f"{name.replace(':', '-')}.log"

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def replace(self, name: str) -> None:
        """What `fab` does before it starts the job again."""
        self.kill(name)
        self.start(name)

    def mend(self) -> None:
        """Start the roles again that were killed or do not answer."""
        gone = []
        for task in self.inventory.tasks():
            running = task.name in self.processes
            if running and not answers(task.host, task.port, 1.0):
                self.kill(task.name)
            if task.role != "coordinator" and task.name not in self.processes:
                gone.append(task.name)
        self.start(*gone)

    def jobs(self) -> Iterator[tuple[int, str]]:
        """Yield pid and command line of each process that is a job of this cluster."""
        roles = {process.pid for process in self.processes.values()}
        for process in psutil.process_iter(["ppid", "cmdline"]):
            words = process.info["cmdline"] or []  # that of a zombie is empty
            of_role = roles & {process.pid, process.info["ppid"]}
            if not of_role and any(str(self.folder) in word for word in words):
                yield process.pid, " ".join(words)

    def part(self, workers: int, servers: int = 1) -> "Cluster":
        """The same roles through a file that names only the first ones."""
        left = {"- worker:": workers, "- ps:": servers}
        kept = []
        for line in self.inventory.path.read_text().splitlines(keepends=True):
            role = next((role for role in left if role in line), None)
            if role is not None:
                left[role] -= 1
            if role is None or left[role] >= 0:
                kept.append(line)
        path = self.folder / f"{workers}-{servers}.yaml"
        path.write_text("".join(kept))
        return Cluster(load(path), self.folder, self.processes)

    def metrics(self) -> Samples:
        """What the coordinator exports now; nothing before it listens."""
        address = self.inventory.task("coordinator", 0).metrics_address
        try:
            with urllib.request.urlopen(
                f"http://{address}/metrics", timeout=HANG_SECONDS
            ) as answer:
                text = answer.read().decode()
        except OSError:
            return {}
        found: Samples = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = tuple(value for _, value in sorted(sample.labels.items()))
                found.setdefault(sample.name, {})[labels] = sample.value
        return found

    def metrics_when(self, job: Running, name: str, enough: float) -> Samples:
        """What the coordinator exports once the values of `name` add up to `enough`."""

        def look() -> Samples | None:
            found = self.metrics()
            return found if sum(found.get(name, {}).values()) >= enough else None

        return job.when(look)

    @contextmanager
    def begun(
        self,
        job: str,
        *settings: str,
        flags: Sequence[str] = (),
        resumed: Path | None = None,
    ) -> Iterator[Running]:
        """Yield a job that was started, or goes on with `resumed`; killed if it still runs."""
        command = [sys.executable, "-m", "cluster", job, *flags]
        command += ["--inventory", str(self.inventory.path)]
        if resumed:
            command += ["--resume", str(resumed)]
        for setting in (f"runs={self.runs}", *settings):
            command += ["--set", setting]
        environment = self.environment
        environment.pop("TF_CPP_MIN_LOG_LEVEL", None)
        before = set(self.runs.glob("*-*/"))
        process = subprocess.Popen(
            command,
            cwd=PROJECT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
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

    def job(self, job: str, *settings: str, code: int | None = None, **how: Any) -> Done:
        """Run a job to its end; `code` and `how` are those of `Running.end` and `begun`."""
        with self.begun(job, *settings, **how) as running:
            return running.end(code)

    @contextmanager
    def held(self, *updates: int, words: Sequence[str], **how: Any) -> Iterator[Running]:
        """Yield a training that waits after each of these updates; it has come to the first."""
        chaos = ",".join(f"hold:{update}" for update in updates)
        flags = ["--chaos", chaos]
        with self.begun("train", *self.settings(*words), flags=flags, **how) as job:
            job.until_held(updates[0])
            yield job

    def train(self, *words: str, code: int = 0, **how: Any) -> Done:
        """Such a training to its end, which is a good one where `code` does not say another."""
        return self.job("train", *self.settings(*words), code=code, **how)


@contextmanager
def cluster_of(workers: int, servers: int = 1, start: bool = True) -> Iterator[Cluster]:
    """A cluster whose roles run, where `start` says so; all are killed at the end."""
    with tempfile.TemporaryDirectory(prefix="pscluster-jobs-") as temporary:
        path = Path(temporary) / "inventory.yaml"
        path.write_text(local_inventory(workers, servers))
        cluster = Cluster(load(path), Path(temporary))
        try:
            if start:
                cluster.mend()
            yield cluster
        finally:
            for name in list(cluster.processes):
                cluster.kill(name)


def own_recordings(
    path: Path,
    *,
    classes: int = 4,
    channels: int = 6,
    steps: int = 64,
    train: int = 400,
    test: int = 120,
) -> Path:
    """An .npz as a user brings it: each class swings at a rate of its own, from four subjects."""
    random = np.random.default_rng(5)
    content: dict[str, Any] = {"subject_train": np.arange(train) // classes % 4}
    for part, count in (("train", train), ("test", test)):
        labels = np.arange(count) % classes
        rate = 2 * np.pi * 2.0 * (labels + 1)
        phase = random.uniform(0, 6.28, (count, 1))
        waves = np.sin(rate[:, None] * (np.arange(steps) / steps) + phase)
        noise = random.normal(0, 0.3, (count, steps, channels))
        windows = waves[:, :, None] * np.arange(1, channels + 1) + noise
        content[f"x_{part}"] = windows.astype(np.float32)
        content[f"y_{part}"] = labels
    np.savez(path, **content)
    return path
