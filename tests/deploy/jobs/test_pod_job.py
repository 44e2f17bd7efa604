"""A job in a container: what it does before and between its coordinators, which are played."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from cluster.control.token import VARIABLE
from cluster.errors import ClusterError, ExitCode
from cluster.inventory import Inventory
from cluster.inventory.templates import local_inventory
from deploy.jobs import pod_job
from deploy.jobs.foreground_job import JobRestartPolicy
from deploy.jobs.node_job.role_restart import RestartPatience, await_roles
from tests.deploy.played_roles import PlayedRole, played_roles
from tests.inventory.cases import machine, read

QUICK = JobRestartPolicy(first_delay_seconds=0.01, limit=2)
COORDINATOR = """\
import json, os, sys
from pathlib import Path
runs, *codes = sys.argv[1:]
with Path(runs, "calls").open("a") as calls:
    calls.write(json.dumps(sys.argv) + "\\n")
count = len(Path(runs, "calls").read_text().splitlines())
run = Path(runs, "1-train")
run.mkdir(exist_ok=True)
Path(os.environ["PSCLUSTER_RUN_FILE"]).write_text(str(run))
code = int(Path(runs, "codes").read_text().split()[count - 1])
if code == 0:
    Path(run, "result.json").touch()
sys.exit(code)
"""


class Played:
    """An inventory with played roles, and a played coordinator that ends with these codes, one a start."""

    def __init__(self, folder: Path, roles: dict[str, str]) -> None:
        (ps, worker) = (address.split(":") for address in roles.values())
        self.runs = folder / "runs"
        self.runs.mkdir()
        self.program = folder / "coordinator.py"
        self.program.write_text(COORDINATOR)
        self.inventory: Inventory = read(
            f"schema: 1\ncluster: boxes\nruns: {self.runs}\nnodes:\n"
            f"  - {{name: here, address: 127.0.0.1, roles: [{{ps: {{port: 20001, metrics_port: {ps[1]}}}}}, "
            f"{{worker: {{port: 20002, metrics_port: {worker[1]}}}}}, coordinator]}}\n",
            on=machine(),
        )

    def run(self, codes: str, identity: str = "uid-1") -> int:
        (self.runs / "codes").write_text(codes)
        command = (sys.executable, str(self.program), str(self.runs))
        return pod_job.run(self.inventory, "train", ["jobs.train.epochs=1"], identity, QUICK, command)

    @property
    def calls(self) -> list[list[str]]:
        return [json.loads(line)[2:] for line in (self.runs / "calls").read_text().splitlines()]


def test_a_first_pod_waits_for_the_roles_and_restarts_none(tmp_path: Path) -> None:
    ps, worker = PlayedRole(), PlayedRole()
    with played_roles(ps_0=ps, worker_0=worker) as addresses:
        played = Played(tmp_path, addresses)
        assert played.run("0") == ExitCode.DONE
    assert (ps.restarts, worker.restarts) == (0, 0)
    assert len(played.calls) == 1
    assert "--resume" not in played.calls[0]
    assert not (played.runs / pod_job.HOLDER).exists()


def test_a_lost_server_is_a_restart_of_the_roles_and_of_the_same_run(tmp_path: Path) -> None:
    ps, worker = PlayedRole(), PlayedRole()
    with played_roles(ps_0=ps, worker_0=worker) as addresses:
        played = Played(tmp_path, addresses)
        assert played.run(f"{int(ExitCode.SERVER_LOST)} 0") == ExitCode.DONE
    assert (ps.restarts, worker.restarts) == (1, 1)
    assert played.calls[1][-2:] == ["--resume", str(played.runs / "1-train")]


@pytest.mark.parametrize(("identity", "resumes"), [("uid-1", True), ("uid-2", False)])
def test_a_pod_after_one_that_was_killed_restarts_the_roles_and_its_own_job_resumes(
    identity: str, resumes: bool, tmp_path: Path
) -> None:
    ps, worker = PlayedRole(), PlayedRole()
    with played_roles(ps_0=ps, worker_0=worker) as addresses:
        played = Played(tmp_path, addresses)
        (played.runs / pod_job.HOLDER).write_text("uid-1")
        (played.runs / pod_job.RUN_FILE).write_text(str(played.runs / "0-train"))
        assert played.run("0", identity) == ExitCode.DONE
    assert (ps.restarts, worker.restarts) == (1, 1)
    assert (played.calls[0][-2:] == ["--resume", str(played.runs / "0-train")]) == resumes


def test_a_job_that_failed_leaves_its_mark_for_the_next_pod(tmp_path: Path) -> None:
    with played_roles(ps_0=PlayedRole(), worker_0=PlayedRole()) as addresses:
        played = Played(tmp_path, addresses)
        assert played.run("1") == ExitCode.FAILED
    assert (played.runs / pod_job.HOLDER).read_text() == "uid-1"


@pytest.mark.parametrize("kept", [None, "uid-1"])
def test_sigterm_ends_a_pod_that_waits_for_the_roles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], kept: str | None
) -> None:
    """It is the first process of its container, for which a signal without a handler does nothing."""
    runs = tmp_path / "runs"
    runs.mkdir()
    if kept is not None:
        (runs / pod_job.HOLDER).write_text(kept)
    for name in ("await_roles", "restart_roles"):
        monkeypatch.setattr(pod_job, name, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    inventory = tmp_path / "inventory.yaml"
    inventory.write_text(local_inventory(1, 1))
    before = signal.getsignal(signal.SIGTERM)
    assert pod_job.main(["pi", "--inventory", str(inventory), "--set", f"runs={runs}"]) == ExitCode.CANCELLED
    assert "interrupted before it was started" in capfd.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is before
    assert (runs / pod_job.HOLDER).exists() == (kept is not None)


def test_a_mark_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    with played_roles(ps_0=PlayedRole(), worker_0=PlayedRole()) as addresses:
        played = Played(tmp_path, addresses)
        (played.runs / pod_job.HOLDER).mkdir()
        with pytest.raises(ClusterError, match=r"cannot be read .* give the volume of the runs to the uid"):
            played.run("0")


def test_roles_that_never_come_end_the_wait_with_one_line() -> None:
    with (
        played_roles(ps_0=PlayedRole()) as roles,
        pytest.raises(ClusterError, match=r"worker:0 \(127.0.0.1:1\) was asked and is not ready; a job needs every"),
    ):
        await_roles({**roles, "worker:0": "127.0.0.1:1"}, print, RestartPatience(0.5, 0.1))


def test_recordings_that_are_missing_are_one_line_and_bad_usage(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(VARIABLE, raising=False)
    inventory = tmp_path / "inventory.yaml"
    inventory.write_text(
        "schema: 1\ncluster: boxes\nconnection: ssh\nnodes:\n"
        "  - {name: a, address: 10.0.0.1, roles: [ps, coordinator]}\n"
        "  - {name: b, address: 10.0.0.2, roles: [worker]}\n"
        f"jobs: {{train: {{data: {{source: {tmp_path}/nothing.zip}}}}}}\n"
    )
    assert pod_job.main(["train", "--inventory", str(inventory)]) == ExitCode.BAD_USAGE
    said = capfd.readouterr().err
    assert f"{tmp_path}/nothing.zip" in said
    assert "Traceback" not in said
