"""A real job on real roles that something else keeps running: its coordinator is killed, and it
comes to its end."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from core.inventory import Inventory, load
from core.inventory.templates import local_inventory
from core.server.probe import answers
from core.server.rights import COPIES
from deploy.common.project import ROOT, environment_for_any_folder, module_command
from deploy.jobs.node_job.records import JobsRoot, JobState, read_all
from deploy.jobs.request import JobRequest
from tests.deploy.playing import PATIENCE_SECONDS, eventually
from tests.hang import HANG_SECONDS

NAME = "20261121T2230-train"


@contextlib.contextmanager
def kept_running(inventory: Inventory, roles: list[str]) -> Iterator["subprocess.Popen[str]"]:
    """What keeps the roles running, once each of them answers."""
    script = str(Path(__file__).parents[1] / "keep_running.py")
    with subprocess.Popen(
        [sys.executable, script, str(inventory.path), *roles],
        cwd=ROOT,
        env=environment_for_any_folder(),
        stdout=subprocess.PIPE,
        text=True,
    ) as keeper:
        try:
            for task in inventory.tasks():
                if task.name in roles:
                    answering = partial(answers, task.host, task.port, 1.0)
                    eventually(answering, f"an answer of {task.name}")
            yield keeper
        finally:
            children = psutil.Process(keeper.pid).children()
            keeper.kill()
            psutil.wait_procs(children, PATIENCE_SECONDS)


@pytest.mark.long
def test_a_killed_coordinator_is_brought_back_with_fresh_roles(tmp_path: Path) -> None:
    root = JobsRoot(tmp_path / "state")
    folder = root.job(NAME)
    folder.path.mkdir(parents=True)
    folder.inventory.write_text(local_inventory(workers=1))
    inventory = load(folder.inventory)
    roles = {
        task.name: task.metrics_address for task in inventory.tasks() if task.role != "coordinator"
    }
    overrides = (
        f"runs={tmp_path}/runs",
        'jobs.train.data.source="synthetic"',
        "jobs.train.model.hidden=8",
        "jobs.train.model.n_stacked_layers=1",
        "jobs.train.epochs=2",
    )
    request = JobRequest("train", "pi.yaml", overrides, ("--quiet",), roles)
    folder.request.write_bytes(request.to_bytes())
    caged = [f"--writes={path}" for path in (tmp_path / "cache", tmp_path / "runs", COPIES)]
    for name in ("cache", "runs"):
        (tmp_path / name).mkdir()
    with kept_running(inventory, [*roles]) as keeper, (tmp_path / "out").open("w") as output:
        job = subprocess.Popen(
            module_command("deploy.jobs.node_job", NAME, "--root", str(root.path), *caged),
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
        started = sorted(line.split()[0] for line in keeper.stdout)
    assert started == ["ps:0", "ps:0", "worker:0", "worker:0"]
    assert "train: ended with signal 9 (SIGKILL) after " in said
    (record,) = read_all(root)
    assert (record.state, record.exit_code) == (JobState.DONE, 0)
    (run,) = (tmp_path / "runs").iterdir()
    assert record.run_folder == str(run)
    assert json.loads((run / "result.json").read_text())["status"] == "done"
    assert said.splitlines()[-1] == f"result: {run}/result.json"
