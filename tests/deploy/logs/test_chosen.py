"""Which logs `--role` and `--node` mean, where a service is beside the roles."""

import pytest

from core.ground.errors import UsageError
from deploy.cluster.services import LogPlace
from deploy.logs import chosen_places
from tests.core.inventory.cases import edited, machine, read
from tests.deploy.tables import Tables

rows = Tables(__file__)

TASKS = read(
    edited(
        ("roles: [worker]\n  - name: rpi03", "roles: [worker, service]\n  - name: rpi03"),
    ),
    on=machine(),
).tasks()
NODES = {task.name: task.node for task in TASKS}
SERVICE = [
    LogPlace("service", node, unit="pscluster-service.service") for node in ("rpi02", "rpi09")
]
ALL = [
    LogPlace("", "rpi02", unit="pscluster-*"),
    *(LogPlace(name, node, unit=f"pscluster-{name}.service") for name, node in NODES.items()),
    *SERVICE,
]


def chosen_by(flags: str) -> list[LogPlace]:
    """What the flags choose, each `--role` and `--node` with its value."""
    words = flags.split()
    given = list(zip(words[::2], words[1::2], strict=True))
    roles, nodes = ([value for flag, value in given if flag == of] for of in ("--role", "--node"))
    return chosen_places(ALL, TASKS, roles, nodes)


@rows("flags", "found")
def test_the_service_counts_by_its_role_and_by_its_nodes(flags: str, found: str) -> None:
    assert " ".join(f"{place.name}@{place.node}" for place in chosen_by(flags)) == found


@rows("flags", "said")
def test_an_unknown_name_is_refused(flags: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        chosen_by(flags)
