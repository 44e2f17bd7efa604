"""Which logs `--role` and `--node` mean, where a service is beside the roles."""

import pytest

from cluster.errors import UsageError
from deploy.cluster.services import LogPlace
from deploy.logs.log_reader import chosen
from tests.inventory.cases import edited, machine, read

TASKS = read(
    edited(
        ("roles: [worker]\n  - name: rpi03", "roles: [worker, service]\n  - name: rpi03"),
    ),
    on=machine(),
).tasks()
NODES = {task.name: task.node for task in TASKS}
SERVICE = [LogPlace("service", node, unit="pscluster-service.service") for node in ("rpi02", "rpi09")]
ALL = [
    LogPlace("", "rpi02", unit="pscluster-*"),
    *(LogPlace(name, node, unit=f"pscluster-{name}.service") for name, node in NODES.items()),
    *SERVICE,
]


def names(roles: list[str], nodes: list[str]) -> list[tuple[str, str]]:
    return [(place.name, place.node) for place in chosen(ALL, TASKS, roles, nodes)]


def test_without_a_choice_all_are_meant() -> None:
    assert chosen(ALL, TASKS, [], []) == ALL


@pytest.mark.parametrize(
    ("roles", "nodes", "found"),
    [
        (["service"], [], [("service", "rpi02"), ("service", "rpi09")]),
        (["service"], ["rpi02"], [("service", "rpi02")]),
        ([], ["rpi02"], [("worker:0", "rpi02"), ("service", "rpi02")]),
        ([], ["rpi09"], [("service", "rpi09")]),
        (["worker"], ["rpi02"], [("worker:0", "rpi02")]),
        (["ps", "service"], [], [("ps:0", NODES["ps:0"]), ("service", "rpi02"), ("service", "rpi09")]),
        (["worker", "service"], ["rpi09"], [("service", "rpi09")]),
    ],
)
def test_the_service_counts_by_its_role_and_by_its_nodes(
    roles: list[str], nodes: list[str], found: list[tuple[str, str]]
) -> None:
    assert names(roles, nodes) == found


@pytest.mark.parametrize(
    ("roles", "nodes", "said"),
    [
        (["servic"], [], "--role servic: expected one of"),
        ([], ["rpi77"], "--node rpi77: expected one of"),
        (["service"], ["rpi77"], "--node rpi77: expected one of"),
    ],
)
def test_an_unknown_name_is_refused(roles: list[str], nodes: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        chosen(ALL, TASKS, roles, nodes)
