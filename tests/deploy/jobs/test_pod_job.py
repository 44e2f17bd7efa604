"""A job in a container: what it does before and between its coordinators, which are played."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.control.own_state import VARIABLE
from core.ground.errors import ClusterError, ExitCode
from core.ground.locks import FileLock
from core.ground.waiting import Backoff
from core.inventory.templates import local_inventory
from deploy.jobs import pod_job
from deploy.jobs.foreground_job import JobRestartPolicy
from tests.core.inventory.cases import machine, read
from tests.deploy.played_roles import PlayedRole, played_roles

QUICK = JobRestartPolicy(Backoff(first_seconds=0.01), limit=2)
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
    """An inventory with played roles, and a played coordinator that ends with these codes, one a
    start."""

    def __init__(self, folder: Path) -> None:
        self.ps = PlayedRole()
        self.worker = PlayedRole()
        self.runs = folder / "runs"
        self.runs.mkdir()
        self.holder = self.runs / pod_job.HOLDER
        self._program = folder / "coordinator.py"
        self._program.write_text(COORDINATOR)
        self._inventory = read(
            f"schema: 1\ncluster: boxes\nruns: {self.runs}\nnodes:\n  - {{name: here, address:"
            f" 127.0.0.1, roles: [{{ps: {{port: 20001, metrics_port: {self.ps.port}}}}}, {{worker:"
            f" {{port: 20002, metrics_port: {self.worker.port}}}}}, coordinator]}}\n",
            on=machine(),
        )

    def left_by(self, pod: str) -> None:
        """As a pod of that identity leaves the volume when it is killed."""
        self.holder.write_text(pod)
        (self.runs / pod_job.RUN_FILE).write_text(f"{self.runs}/0-train")

    def run(self, codes: str, identity: str = "uid-1") -> int:
        (self.runs / "codes").write_text(codes)
        command = (sys.executable, str(self._program), str(self.runs))
        settings = ["jobs.train.epochs=1"]
        return pod_job.run(self._inventory, "train", settings, identity, QUICK, command)

    @property
    def resumed(self) -> list[str]:
        """Of each start the run that it resumes, or nothing."""
        calls = map(json.loads, (self.runs / "calls").read_text().splitlines())
        return [" ".join(call).partition(" --resume ")[2] for call in calls]

    @property
    def restarts(self) -> tuple[int, int]:
        return (self.ps.restarts, self.worker.restarts)


@pytest.fixture
def played(tmp_path: Path) -> Iterator[Played]:
    made = Played(tmp_path)
    with played_roles(ps_0=made.ps, worker_0=made.worker):
        yield made


def test_a_first_pod_waits_for_the_roles_and_restarts_none(played: Played) -> None:
    assert played.run("0") == ExitCode.DONE
    assert (played.restarts, played.resumed) == ((0, 0), [""])
    assert not played.holder.exists()


def test_a_lost_server_is_a_restart_of_the_roles_and_of_the_same_run(played: Played) -> None:
    assert played.run(f"{int(ExitCode.SERVER_LOST)} 0") == ExitCode.DONE
    assert (played.restarts, played.resumed) == ((1, 1), ["", f"{played.runs}/1-train"])


@pytest.mark.parametrize(("identity", "resumes"), [("uid-1", True), ("uid-2", False)])
def test_a_pod_after_one_that_was_killed_restarts_the_roles_and_its_own_job_resumes(
    identity: str, resumes: bool, played: Played
) -> None:
    played.left_by("uid-1")
    assert played.run("0", identity) == ExitCode.DONE
    assert (played.restarts, played.resumed) == ((1, 1), [f"{played.runs}/0-train" * resumes])


def test_a_second_pod_beside_one_that_runs_touches_nothing(played: Played) -> None:
    """The node of the first one cannot be reached, so Kubernetes starts another; the first one goes
    on."""

    def content() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in played.runs.iterdir()}

    played.left_by("uid-1")
    (played.runs / "codes").write_text("0")
    with FileLock(played.runs / pod_job.LOCK):
        before = content()
        with pytest.raises(
            ClusterError, match=r"another pod runs a job .* uid-1\): nothing was restarted"
        ):
            played.run("0")
        assert (content(), played.restarts) == (before, (0, 0))
    assert played.run("0") == ExitCode.DONE


def test_a_job_that_failed_leaves_its_mark_for_the_next_pod(played: Played) -> None:
    assert played.run("1") == ExitCode.FAILED
    assert played.holder.read_text() == "uid-1"


@pytest.mark.parametrize("kept", [None, "uid-1"])
def test_sigterm_ends_a_pod_that_waits_for_the_roles(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    kept: str | None,
) -> None:
    """It is the first process of its container, for which a signal without a handler does
    nothing."""
    holder = tmp_path / pod_job.HOLDER
    if kept is not None:
        holder.write_text(kept)
    for name in ("await_roles", "restart_roles"):
        monkeypatch.setattr(pod_job, name, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    inventory = tmp_path / "inventory.yaml"
    inventory.write_text(local_inventory(1, 1))
    before = signal.getsignal(signal.SIGTERM)
    words = ["pi", "--inventory", str(inventory), "--set", f"runs={tmp_path}"]
    assert pod_job.main(words) == ExitCode.CANCELLED
    assert "interrupted before it was started" in capfd.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is before
    assert holder.exists() == (kept is not None)


def test_a_mark_that_cannot_be_read_is_one_line(played: Played) -> None:
    played.holder.mkdir()
    said = r"cannot be read .* give the volume of the runs to the uid"
    with pytest.raises(ClusterError, match=said):
        played.run("0")


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
    )
    data = f"{tmp_path}/nothing.zip"
    words = ["train", "--inventory", str(inventory), "--set", f"jobs.train.data.source={data}"]
    assert pod_job.main(words) == ExitCode.BAD_USAGE
    said = capfd.readouterr().err
    assert (data in said, "Traceback" in said) == (True, False)
