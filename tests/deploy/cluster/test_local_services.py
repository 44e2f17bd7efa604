import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from core.errors import ExitCode
from core.inventory import load
from deploy.cluster.cluster import local
from deploy.cluster.fleet import Fleet
from deploy.cluster.services import Stopped
from deploy.common.project import environment_for_any_folder
from deploy.jobs.services import ForegroundJobs
from deploy.supervisor.services import Supervised
from tests.deploy.playing import PATIENCE_SECONDS, eventually, gone

INVENTORY = """schema: 1
cluster: quiet
connection: local
nodes: [{name: here, address: 127.0.0.1, roles: [ps, worker, coordinator]}]
"""


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    path = tmp_path / "inventory.yaml"
    path.write_text(INVENTORY)
    return path


@contextmanager
def job(inventory: Path, how: str) -> Iterator[subprocess.Popen[str]]:
    here = Path(__file__).parents[1]
    player = [str(here / "play_job.py"), str(inventory.with_name("journal")), *how.split()]
    with subprocess.Popen(
        [sys.executable, str(here / "drive_job.py"), str(inventory), "pi", "0.5", "5", *player],
        env=environment_for_any_folder(),
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def services_of(path: Path) -> tuple[Supervised, ForegroundJobs]:
    inventory = load(path)
    services = Supervised(inventory, ())
    return services, ForegroundJobs(
        local(inventory, (), services), lambda: services.restart_in_place(())
    )


def stop(path: Path) -> Stopped:
    inventory = load(path)
    return Supervised(inventory, ()).stop(Fleet.here(inventory), ["here"])


def journal(inventory: Path) -> list[str]:
    path = inventory.with_name("journal")
    if path.exists():
        return path.read_text().splitlines()
    return []


def test_stop_interrupts_the_job_so_that_it_leaves_its_result(inventory: Path) -> None:
    _, jobs = services_of(inventory)
    with job(inventory, "result") as running:
        eventually(lambda: bool(journal(inventory)), "the start of the job")
        assert jobs.running_job() == running.pid
        stop(inventory)
        assert running.wait(PATIENCE_SECONDS) == ExitCode.CANCELLED
    assert journal(inventory)[1:] == ["SIGINT"]
    assert jobs.running_job() is None


def test_a_second_job_is_refused_and_the_first_goes_on(inventory: Path) -> None:
    with job(inventory, "result") as first:
        eventually(lambda: bool(journal(inventory)), "the start of the job")
        with job(inventory, "result") as second:
            _, words = second.communicate(timeout=PATIENCE_SECONDS)
            assert second.returncode == ExitCode.FAILED
        assert f"a job is running on cluster quiet already (fab, pid {first.pid})" in words
        assert len(journal(inventory)) == 1
        assert not gone(int(journal(inventory)[0]))
        os.kill(first.pid, 2)
        assert first.wait(PATIENCE_SECONDS) == ExitCode.CANCELLED
