"""`fab deploy start` over SSH that does not go well at once, and is typed again."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from core.control.own_state import state_of
from core.inventory import load
from deploy.cluster.connector import NodeUnreachableError
from deploy.converge import coordinator
from deploy.converge.deployment import PlanRunner
from deploy.converge.publication import PublishedData
from deploy.converge.recap import Rollback, UnfinishedRollback
from deploy.jobs.attached_job import SubmittedJobs
from deploy.jobs.records import JobRecord, JobState
from tests.deploy.over_ssh.sshd import Sshd
from tests.deploy.played_nodes import KINDS, PlayedNodes
from tests.deploy.tables import Tables
from tests.deploy.three_nodes import THREE, write
from tests.deploy.typed import Fab

rows = Tables(__file__)

pytestmark = pytest.mark.usefixtures("one_release")

HUB = "pi-1"
WORKERS = ("pi-2", "pi-3")
EVERYTHING = list(KINDS)
BOTH = ["pi", "train"]
REPEATED = "already running, jobs not repeated (--jobs runs them)"


@pytest.fixture
def nodes(asked: None, sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlayedNodes:
    write(tmp_path, THREE.replace("1000}}", "1000}}, train: {{epochs: 1}}"), sshd)
    (tmp_path / "nodes").mkdir()
    return PlayedNodes(tmp_path / "nodes", monkeypatch)


class PlayedJobs:
    """The jobs on the coordinator's node; all of them end at once, and well.

    `refuses` are those it does not take. `names` and `after` are of those that began.
    """

    node = "pi-1"
    fetch = Mock(return_value=None)

    def __init__(self, folder: Path) -> None:
        self.inventory = load(folder / "inventory.yaml", check_interfaces=False)
        self.refuses: set[str] = set()
        self.began: list[JobRecord] = []
        self.names: list[str] = []
        self.after: list[str] = []

    def submit(self, job: str, flags: Any, after: str = "", more: Any = (), app: Any = None) -> str:
        if job in self.refuses:
            raise NodeUnreachableError(f"pi-1: the connection broke during `systemctl start {job}`")
        name = f"2026-{len(self.began)}-{job}"
        self.began.append(JobRecord(name, job, JobState.DONE, exit_code=0))
        self.names.append(job)
        self.after.append(after)
        return name

    def records(self) -> list[JobRecord]:
        return self.began

    def attach(self, name: str, *_: Any) -> JobRecord:
        return next(record for record in self.began if record.id == name)


@pytest.fixture
def jobs(nodes: PlayedNodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlayedJobs:
    played = PlayedJobs(tmp_path)
    monkeypatch.setattr(SubmittedJobs, "_jobs", lambda *_: played)
    monkeypatch.setattr(PublishedData, "prepared", None)
    return played


def newest_recap(folder: Path) -> Any:
    recaps = (state_of(folder / "inventory.yaml", "three") / "deployments").glob("*.json")
    return json.loads(max(recaps, key=lambda path: path.name).read_text())


def test_a_retry_of_one_that_went_on_to_its_end_is_for_those_that_failed(
    nodes: PlayedNodes, fab: Fab
) -> None:
    nodes.break_down("pi-2", "code")
    fab("deploy plan").says(" to change; `fab deploy start --inventory ")
    fab("deploy start --no-jobs").says(code=3)
    assert (nodes.done("pi-2"), nodes.done("pi-3")) == (["prepare"], EVERYTHING)
    nodes.mend("pi-2", "code")
    nodes.forget("pi-3", "code")
    shown = fab("deploy start --dry-run --retry --json").warns("once more: pi-2\n", code=0)
    assert {name for changed in shown.json()["phases"].values() for name in changed} == {"pi-2"}
    fab("deploy start --retry --no-jobs").warns("once more: pi-2\n", code=0)
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
        fab("deploy start --no-jobs").says(code=130)
    kept = newest_recap(tmp_path)
    assert (kept["complete"], kept["changed"]) == (False, 6)
    fab("deploy start --retry --no-jobs").says()
    assert [nodes.done(name) for name in (HUB, *WORKERS)] == [EVERYTHING] * 3


def test_a_job_that_runs_is_interrupted_after_a_yes_alone(
    nodes: PlayedNodes, fab: Fab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator, "only_operator", lambda *_: nullcontext(["1-train"]))
    refused = "job 1-train runs: nothing done: `--yes` continues without a question"
    for action in ("start --no-jobs", "stop", "restart", "rollback"):
        fab(f"deploy {action}").warns(refused, code=2)
    assert nodes.done(HUB) == []
    fab("deploy start --no-jobs --yes").says()


def test_a_node_taken_out_is_told_what_stops_there(
    nodes: PlayedNodes, tmp_path: Path, fab: Fab
) -> None:
    (state_of(tmp_path / "inventory.yaml", "three") / "nodes.json").write_text('["pi-9"]')
    fab("deploy start --no-jobs").warns(
        "no longer in the inventory: pi-9: the others shut them out"
    )
    assert "mounts of the shared folder hang" in newest_recap(tmp_path)["addresses"][0]


def test_jobs_run_once_after_a_start_that_changed_something(
    jobs: PlayedJobs, nodes: PlayedNodes, fab: Fab
) -> None:
    fab("deploy start").says()
    assert (jobs.names, jobs.after) == (BOTH, ["", jobs.began[0].id])
    fab("deploy start").says(REPEATED)
    nodes.forget("pi-2", "code")
    fab("deploy start --no-jobs").says("jobs not run: --no-jobs\n")
    fab("deploy start").says(REPEATED)
    assert jobs.names == BOTH
    fab("deploy start --jobs").says()
    assert jobs.names == BOTH * 2


def test_jobs_that_could_not_be_submitted_run_with_the_next_start(
    jobs: PlayedJobs, fab: Fab
) -> None:
    jobs.refuses = {*BOTH}
    fab("deploy start").warns("the connection broke", code=1)
    fab("deploy start --no-jobs").says(
        "the next start without it runs those that an earlier one did not submit"
    )
    jobs.refuses = set()
    fab("deploy start").says(
        "0 changed in", "an earlier start did not come to submit all its jobs: they are run now"
    )
    assert jobs.names == BOTH
    fab("deploy start").says(REPEATED)


def test_what_was_submitted_is_not_submitted_again(
    jobs: PlayedJobs, nodes: PlayedNodes, fab: Fab
) -> None:
    jobs.refuses = {"train"}
    fab("deploy start").says(code=1)
    assert jobs.names == ["pi"]
    jobs.refuses = set()
    nodes.forget("pi-3", "services")  # a node changes meanwhile
    first = jobs.began[0].id
    fab("deploy start").says(f"job 1 of 2: {first}")  # its result is fetched now
    assert (jobs.names, jobs.after) == (BOTH, ["", first])


def test_a_start_that_changed_nothing_owes_no_jobs(
    jobs: PlayedJobs, nodes: PlayedNodes, fab: Fab
) -> None:
    fab("deploy start --no-jobs").says()
    for line, owed in (("deploy start", []), ("deploy start --jobs", BOTH)):  # they were asked for
        nodes.unreached = [*WORKERS]
        fab(line).says(code=3)
        nodes.unreached = []
        fab("deploy start").says(*([] if owed else [REPEATED]))
        assert jobs.names == owed


@rows("action", "stays")
def test_new_code_ends_a_rollback_that_was_cut_off(
    nodes: PlayedNodes, tmp_path: Path, fab: Fab, action: str, stays: bool
) -> None:
    kept = UnfinishedRollback(state_of(tmp_path / "inventory.yaml", "three") / "rollback.json")
    unfinished = Rollback("a" * 16, {"pi-2": "b" * 16}, ("pi-2",))
    kept.write(unfinished)
    assert kept.read() == unfinished
    fab(f"deploy {action}").says()
    assert kept.read() == (unfinished if stays else None)
