"""`fab deploy start` over SSH that does not go well at once, and is typed again."""

import json
from pathlib import Path
from typing import Any

import pytest

from cluster.inventory import load
from deploy.cluster.connector import NodeUnreachableError
from deploy.converge.deployment import PlanRunner
from deploy.converge.publication import PublishedData
from deploy.converge.rollback_plan import Rollback, UnfinishedRollback
from deploy.jobs.attached_job import SubmittedJobs
from deploy.jobs.node_job.records import JobRecord, JobState
from tests.deploy.over_ssh.sshd import Sshd
from tests.deploy.played_nodes import KINDS, PlayedNodes
from tests.deploy.three_nodes import THREE, write
from tests.deploy.typed import Fab

pytestmark = pytest.mark.usefixtures("one_release")

HUB, WORKERS = "pi-1", ("pi-2", "pi-3")
EVERYTHING = list(KINDS)
REPEATED = "already running, jobs not repeated (--jobs runs them)"


@pytest.fixture
def nodes(asked: None, sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlayedNodes:
    write(tmp_path, THREE.replace("1000}}", "1000}}, train: {{epochs: 1}}"), sshd)
    (tmp_path / "nodes").mkdir()
    return PlayedNodes(tmp_path / "nodes", monkeypatch)


class PlayedJobs:
    """The jobs on the coordinator's node; all of them end at once, and well. `refuses` are those it does not take."""

    node = "pi-1"

    def __init__(self, folder: Path) -> None:
        self.inventory = load(folder / "inventory.yaml", check_interfaces=False)
        self.refuses: set[str] = set()
        self.began: list[JobRecord] = []
        self.after: list[str] = []

    @property
    def names(self) -> list[str]:
        return [record.job for record in self.began]

    def submit(self, job: str, flags: Any, after: str = "", more: Any = (), app: Any = None) -> str:
        if job in self.refuses:
            raise NodeUnreachableError(f"pi-1: the connection broke during `systemctl start {job}`")
        self.began.append(JobRecord(f"2026-{len(self.began)}-{job}", job, JobState.DONE, exit_code=0))
        self.after.append(after)
        return self.began[-1].id

    def records(self) -> list[JobRecord]:
        return self.began

    def attach(self, name: str, *_: Any) -> JobRecord:
        return next(record for record in self.began if record.id == name)

    def fetch(self, *_: Any) -> None:
        return None


@pytest.fixture
def jobs(nodes: PlayedNodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlayedJobs:
    played = PlayedJobs(tmp_path)
    monkeypatch.setattr(SubmittedJobs, "_jobs", lambda *_: played)
    monkeypatch.setattr(PublishedData, "prepared", None)
    return played


def newest_recap(folder: Path) -> Any:
    recaps = (folder / ".pscluster" / "three" / "deployments").glob("*.json")
    return json.loads(max(recaps, key=lambda path: path.name).read_text())


def test_a_retry_of_a_start_that_was_cut_short_is_for_all_its_nodes(
    nodes: PlayedNodes, tmp_path: Path, fab: Fab
) -> None:
    nodes.break_down(HUB, "code")
    first = fab("deploy start --no-jobs")
    assert (first.code, "roles were not started: ps:0 is on pi-1" in first.stdout) == (3, True)
    assert newest_recap(tmp_path)["complete"] is False
    assert nodes.done("pi-2") == ["prepare", "code"]
    nodes.mend(HUB, "code")

    again = fab("deploy start --retry --no-jobs")

    assert again.code == 0, again.stderr
    assert "the last deployment was cut short; once more: pi-1, pi-2, pi-3" in again.stderr
    assert [nodes.done(name) for name in (HUB, *WORKERS)] == [EVERYTHING] * 3
    assert newest_recap(tmp_path)["complete"] is True
    assert fab("deploy start --retry --no-jobs").code == 2


def test_a_retry_of_one_that_went_on_to_its_end_is_for_those_that_failed(nodes: PlayedNodes, fab: Fab) -> None:
    nodes.break_down("pi-2", "code")
    assert fab("deploy start --no-jobs").code == 3
    assert (nodes.done("pi-2"), nodes.done("pi-3")) == (["prepare"], EVERYTHING)
    nodes.mend("pi-2", "code")
    nodes.forget("pi-3", "code")
    again = fab("deploy start --retry --no-jobs")
    assert (again.code, "once more: pi-2\n" in again.stderr) == (0, True)
    assert (nodes.done("pi-2"), nodes.done("pi-3")) == (EVERYTHING, ["prepare", "services"])


def test_a_start_that_was_interrupted_counts_as_cut_short(
    nodes: PlayedNodes, tmp_path: Path, fab: Fab, monkeypatch: pytest.MonkeyPatch
) -> None:
    carried_out = PlanRunner._phase

    def interrupted(self: PlanRunner, phase: str, plans: Any) -> None:
        if phase == "services":
            assert newest_recap(tmp_path)["complete"] is False  # what a kill would leave
            raise KeyboardInterrupt
        carried_out(self, phase, plans)

    with monkeypatch.context() as patch:
        patch.setattr(PlanRunner, "_phase", interrupted)
        assert fab("deploy start --no-jobs").code == 130
    kept = newest_recap(tmp_path)
    assert (kept["complete"], kept["changed"]) == (False, 6)
    assert fab("deploy start --retry --no-jobs").code == 0
    assert [nodes.done(name) for name in (HUB, *WORKERS)] == [EVERYTHING] * 3


def test_jobs_run_once_after_a_start_that_changed_something(jobs: PlayedJobs, nodes: PlayedNodes, fab: Fab) -> None:
    assert fab("deploy start").code == 0
    assert (jobs.names, jobs.after) == (["pi", "train"], ["", jobs.began[0].id])
    again = fab("deploy start")
    assert (again.code, REPEATED in again.stdout) == (0, True)
    nodes.forget("pi-2", "code")
    assert "jobs not run: --no-jobs\n" in fab("deploy start --no-jobs").stdout
    assert REPEATED in fab("deploy start").stdout
    assert jobs.names == ["pi", "train"]
    assert fab("deploy start --jobs").code == 0
    assert jobs.names == ["pi", "train"] * 2


def test_jobs_that_could_not_be_submitted_run_with_the_next_start(jobs: PlayedJobs, fab: Fab) -> None:
    jobs.refuses = {"pi", "train"}
    first = fab("deploy start")
    assert (first.code, "the connection broke" in first.stderr) == (1, True)
    without = fab("deploy start --no-jobs")
    assert without.code == 0
    assert "the next start without it runs those that an earlier one did not submit" in without.stdout
    jobs.refuses = set()
    again = fab("deploy start")
    assert again.code == 0
    assert "0 changed in" in again.stdout
    assert "an earlier start did not come to submit all its jobs: they are run now" in again.stdout
    assert jobs.names == ["pi", "train"]
    assert REPEATED in fab("deploy start").stdout


def test_what_was_submitted_is_not_submitted_again(jobs: PlayedJobs, fab: Fab) -> None:
    jobs.refuses = {"train"}
    assert fab("deploy start").code == 1
    assert jobs.names == ["pi"]
    jobs.refuses = set()
    again = fab("deploy start")
    assert again.code == 0
    assert (jobs.names, jobs.after) == (["pi", "train"], ["", jobs.began[0].id])
    assert f"job 1 of 2: {jobs.began[0].id}" in again.stdout  # its result is fetched now


def test_nor_when_a_node_changes_meanwhile(jobs: PlayedJobs, nodes: PlayedNodes, fab: Fab) -> None:
    jobs.refuses = {"train"}
    assert fab("deploy start").code == 1
    jobs.refuses = set()
    nodes.forget("pi-3", "services")
    assert fab("deploy start").code == 0
    assert jobs.names == ["pi", "train"]


def test_jobs_that_no_cluster_was_there_for_run_when_it_is(jobs: PlayedJobs, nodes: PlayedNodes, fab: Fab) -> None:
    nodes.unreached = [*WORKERS]
    first = fab("deploy start")
    assert (first.code, "no job can run: 0 of 2 workers are left" in first.stdout) == (3, True)
    nodes.unreached = []
    again = fab("deploy start --retry")
    assert (again.code, "once more: pi-1, pi-2, pi-3" in again.stderr) == (0, True)
    assert jobs.names == ["pi", "train"]


def test_a_start_that_changed_nothing_owes_no_jobs(jobs: PlayedJobs, nodes: PlayedNodes, fab: Fab) -> None:
    assert fab("deploy start --no-jobs").code == 0
    nodes.unreached = [*WORKERS]
    assert fab("deploy start").code == 3
    nodes.unreached = []
    assert REPEATED in fab("deploy start").stdout
    nodes.unreached = [*WORKERS]
    assert fab("deploy start --jobs").code == 3
    nodes.unreached = []
    assert fab("deploy start").code == 0  # they were asked for
    assert jobs.names == ["pi", "train"]


@pytest.mark.parametrize(("action", "stays"), [("start --no-jobs", False), ("push", False), ("storage", True)])
def test_new_code_ends_a_rollback_that_was_cut_off(
    nodes: PlayedNodes, tmp_path: Path, fab: Fab, action: str, stays: bool
) -> None:
    kept = UnfinishedRollback(tmp_path / ".pscluster" / "three" / "rollback.json")
    unfinished = Rollback("a" * 16, {"pi-2": "b" * 16}, ("pi-2",))
    kept.write(unfinished)
    assert kept.read() == unfinished
    assert fab(f"deploy {action}").code == 0
    assert kept.read() == (unfinished if stays else None)


def test_a_dry_run_of_a_retry_shows_the_retry(nodes: PlayedNodes, fab: Fab) -> None:
    nodes.break_down("pi-2", "code")
    assert fab("deploy start --no-jobs").code == 3
    nodes.forget("pi-3", "code")
    shown = fab("deploy start --dry-run --retry --json")
    assert (shown.code, "once more: pi-2\n" in shown.stderr) == (0, True)
    phases = json.loads(shown.stdout)["phases"]
    assert {name for changed in phases.values() for name in changed} == {"pi-2"}
    both = fab("deploy start --dry-run --retry --limit pi-1")
    assert (both.code, "--limit and --retry: give one of them" in both.stderr) == (2, True)
