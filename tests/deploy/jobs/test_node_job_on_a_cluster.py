"""A real job on real roles that something else keeps running: its coordinator is killed, and it comes to its end."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from cluster.inventory import Inventory, load
from cluster.inventory.templates import local_inventory
from cluster.server.probe import answers
from deploy.common.project import ROOT, environment_for_any_folder, module_command
from deploy.jobs.node_job.folders import JobsRoot
from deploy.jobs.node_job.records import JobState, read_all
from deploy.jobs.request import JobRequest
from tests.deploy.playing import PATIENCE_SECONDS, eventually

NAME = "20261121T2230-train"
HANG_SECONDS = 250.0
"""Two coordinators load TensorFlow, and one trains: what passes it hangs."""


@pytest.fixture
def inventory(tmp_path: Path) -> Inventory:
    path = tmp_path / "inventory.yaml"
    path.write_text(local_inventory(workers=1))
    return load(path)


@contextlib.contextmanager
def kept_running(inventory: Inventory) -> Iterator["subprocess.Popen[str]"]:
    names = [task.name for task in inventory.tasks() if task.role != "coordinator"]
    script = str(Path(__file__).parents[1] / "keep_running.py")
    with subprocess.Popen(
        [sys.executable, script, str(inventory.path), *names],
        cwd=ROOT,
        env=environment_for_any_folder(),
        stdout=subprocess.PIPE,
        text=True,
    ) as keeper:
        try:
            for task in inventory.tasks():
                if task.role != "coordinator":
                    eventually(lambda task=task: answers(task.host, task.port, 1.0), f"an answer of {task.name}")  # type: ignore[misc]
            yield keeper
        finally:
            children = psutil.Process(keeper.pid).children()
            keeper.kill()
            psutil.wait_procs(children, PATIENCE_SECONDS)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_killed_coordinator_is_brought_back_with_fresh_roles(tmp_path: Path, inventory: Inventory) -> None:
    folder = JobsRoot(tmp_path / "state").job(NAME)
    folder.path.mkdir(parents=True)
    small = ("jobs.train.model.hidden=8", "jobs.train.model.n_stacked_layers=1", "jobs.train.epochs=2")
    overrides = (f"runs={tmp_path / 'runs'}", 'jobs.train.data.source="synthetic"', *small)
    roles = {task.name: task.metrics_address for task in inventory.tasks() if task.role != "coordinator"}
    folder.request.write_bytes(JobRequest("train", "pi.yaml", overrides, ("--quiet",), roles).to_bytes())
    folder.inventory.write_text(inventory.path.read_text())
    with kept_running(inventory) as keeper, (tmp_path / "out").open("w") as output:
        job = subprocess.Popen(
            module_command("deploy.jobs.node_job", NAME, "--root", str(tmp_path / "state")),
            cwd=ROOT,
            env={**environment_for_any_folder(), "XDG_CACHE_HOME": str(tmp_path / "cache")},
            stdout=output,
            stderr=output,
        )
        try:
            eventually(folder.run_file.exists, "a run folder", HANG_SECONDS)
            (coordinator,) = psutil.Process(job.pid).children()
            coordinator.kill()
            job.wait(HANG_SECONDS)
        finally:
            job.kill()
            job.wait()
        said = folder.output.read_text()
        assert job.returncode == 0, said
        keeper.kill()
        assert keeper.stdout is not None
        started = [line.split()[0] for line in keeper.stdout]
    assert sorted(started) == ["ps:0", "ps:0", "worker:0", "worker:0"]
    assert "train: ended with signal 9 (SIGKILL) after " in said
    (record,) = read_all(JobsRoot(tmp_path / "state"))
    assert (record.state, record.exit_code) == (JobState.DONE, 0)
    assert record.run_folder is not None
    assert Path(record.run_folder).parent == tmp_path / "runs"
    result = json.loads((Path(record.run_folder) / "result.json").read_text())
    assert result["status"] == "done"
    assert len(list((tmp_path / "runs").iterdir())) == 1
    assert said.splitlines()[-1] == f"result: {record.run_folder}/result.json"
