from pathlib import Path
from typing import Any

import pytest

from core.inventory import Task
from deploy.cluster.services import ClusterStatus, RoleState, RoleStatus
from deploy.converge.subject import SILENT
from deploy.converge.this_machine import STOPS_AFTER, Roles, changes_of, disagreement, plan_start

PI = Path("pi.yaml")
TASKS = (
    Task("ps", 0, "here", "127.0.0.1", 2222, 9200),
    Task("worker", 0, "here", "127.0.0.1", 2223, 9201),
)


def status(*states: str) -> ClusterStatus:
    roles = [
        RoleStatus(
            *(task.role, task.index, task.node, task.address, task.metrics_address),
            RoleState(state),
            reason="no reason",
        )
        for task, state in zip(TASKS, states, strict=True)
    ]
    return ClusterStatus("local", tuple(roles))


STOPPED = status("stopped", "stopped")
READY = status("ready", "ready")


def kinds(now: ClusterStatus, wanted: bool | None = None) -> dict[str, str]:
    steps = plan_start(TASKS, now, ("pi", "train"), wanted, PI)
    return {step.subject: step.action for step in steps}


def test_a_stopped_cluster_is_started_and_its_jobs_are_run_in_order() -> None:
    plan = plan_start(TASKS, STOPPED, ("train", "pi"), None, PI)
    assert [f"{step.action} {step.subject}" for step in plan] == [
        *("start ps:0", "start worker:0", "run train", "run pi")
    ]
    assert changes_of(plan) == 4
    assert plan[0].detail == "127.0.0.1:2222, metrics on 127.0.0.1:9200, on here"


def test_a_running_cluster_keeps_its_roles_and_does_not_repeat_jobs() -> None:
    plan = plan_start(TASKS, READY, ("pi",), None, PI)
    assert [step.action for step in plan] == ["keep", "keep", "skip"]
    assert changes_of(plan) == 0
    assert plan[-1].detail.startswith("already running, jobs not repeated")


def test_jobs_asks_for_them_again_and_no_jobs_never_runs_them() -> None:
    assert kinds(READY, True)["pi"] == "run"
    assert kinds(STOPPED, False)["pi"] == "skip"


def test_only_what_is_not_well_is_restarted_and_what_is_on_its_way_is_waited_for() -> None:
    jobs = {"pi": "run", "train": "run"}
    assert kinds(status("failed", "ready")) == {"ps:0": "restart", "worker:0": "keep", **jobs}
    assert kinds(status("frozen", "waiting")) == {"ps:0": "restart", "worker:0": "wait", **jobs}


def worker(index: int, port: int) -> tuple[Task, Task]:
    return TASKS[0], Task("worker", index, "here", "127.0.0.1", port, 9201)


def test_a_cluster_that_runs_with_other_roles_is_refused_with_the_differences() -> None:
    (refused,) = plan_start(worker(1, 3333), READY, ("pi",), None, PI)
    assert refused.action == "refuse"
    assert "worker:0 runs and is not in the inventory; worker:1 is new" in refused.detail
    assert "`fab deploy restart --inventory pi.yaml` changes it over" in refused.detail
    moved = disagreement(worker(0, 3333), READY, PI)
    assert "worker:0 runs at 127.0.0.1:2223, not 127.0.0.1:3333" in moved
    assert disagreement(TASKS[:1], STOPPED, PI) == ""


@pytest.mark.parametrize(
    ("stops", "follows"),
    [("", "they stay until `fab deploy stop"), ("1", "they are stopped now\n")],
)
def test_an_interrupted_start_says_what_follows(
    stops: str, follows: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupted:
        def start(self, *_: object) -> ClusterStatus:
            raise KeyboardInterrupt

    monkeypatch.setenv(STOPS_AFTER, stops)
    services: Any = Interrupted()
    (first, _) = Roles(TASKS, services, PI).changes(STOPPED)
    call: Any = first.steps[0]
    with pytest.raises(KeyboardInterrupt):
        call.action(SILENT)
    assert f"interrupted while the roles start; {follows}" in capsys.readouterr().err
