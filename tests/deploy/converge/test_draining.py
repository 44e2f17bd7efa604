"""Who is drained before a restart, and what the coordinator's node answers to it."""

from typing import Any

from deploy.converge.coordinator import (
    Drained,
    lost_parameters,
    read_answers,
    workers_to_drain,
)
from tests.deploy.converge.pi import thesis
from tests.deploy.converge.tables import rows


def test_workers_are_drained_while_others_are_left_and_no_parameter_server_goes_with_them() -> None:
    inventory = thesis()
    workers = inventory.of_role("worker")
    servers = inventory.of_role("ps")
    assert workers_to_drain(workers[:2], workers) == [task.name for task in workers[:2]]
    for restarted in (workers, servers, [*servers, *workers[:2]]):
        assert workers_to_drain(restarted, workers) == []


@rows("drained")
def test_answers_are_read(row: Any) -> None:
    found = Drained(row["job"], row.get("drained", ()), row.get("trouble", ()))
    assert read_answers(row["text"], ["worker:1", "worker:2"]) == found


def test_what_a_parameter_server_s_restart_means_is_said() -> None:
    assert lost_parameters(["ps:0"]).startswith("ps:0 holds the parameters")
    assert lost_parameters(["ps:0", "ps:1"]).startswith("ps:0, ps:1 hold the parameters")
