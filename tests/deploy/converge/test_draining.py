"""Who is drained before a restart, and what the coordinator's node answers to it."""

import pytest

from deploy.converge.draining import SCRIPT, Drained, drain_words, lost_parameters, read_answers, workers_to_drain
from tests.deploy.converge.pi import thesis


def test_workers_are_drained_while_others_are_left_and_no_parameter_server_goes_with_them() -> None:
    inventory = thesis()
    workers, servers = inventory.of_role("worker"), inventory.of_role("ps")
    assert workers_to_drain(workers[:2], workers) == [task.name for task in workers[:2]]
    assert workers_to_drain(workers, workers) == []
    assert workers_to_drain([*servers, *workers[:2]], workers) == []
    assert workers_to_drain(servers, workers) == []


def test_the_script_is_told_where_the_coordinator_listens() -> None:
    coordinator = thesis().of_role("coordinator")[0]
    words = drain_words(coordinator, ["worker:0", "worker:12"], 60.0)
    assert words == ["python3", "-", coordinator.metrics_address, "60", "worker:0", "worker:12"]
    compile(SCRIPT, "script", "exec")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("coordinator -1 [Errno 111] Connection refused\n", Drained(job=False)),
        (
            "coordinator 0 timed out\n",
            Drained(job=False, trouble=("nothing was drained, should a job be running: timed out",)),
        ),
        (
            "",
            Drained(False, (), ("nothing was drained, should a job be running: no answer of the coordinator's node",)),
        ),
        (
            "coordinator 200 ready\nworker:1 200 drained\nworker:2 -1 [Errno 111] Connection refused\n",
            Drained(True, ("worker:1",)),
        ),
        (
            "Welcome to this Pi!\n\ncoordinator hello\ncoordinator 200 ready\nworker:1 200 drained\nworker:2 -1 no\n",
            Drained(True, ("worker:1",)),
        ),
        (
            "coordinator 200 ready\nworker:1 503 still at its work\nworker:2 200 drained\n",
            Drained(
                True,
                ("worker:2",),
                ("worker:1 could not be drained (still at its work): restarted anyway, others take over its work",),
            ),
        ),
    ],
)
def test_answers_are_read(text: str, found: Drained) -> None:
    assert read_answers(text, ["worker:1", "worker:2"]) == found


def test_what_a_parameter_server_s_restart_means_is_said() -> None:
    assert lost_parameters(["ps:0"]).startswith("ps:0 holds the parameters")
    assert lost_parameters(["ps:0", "ps:1"]).startswith("ps:0, ps:1 hold the parameters")
