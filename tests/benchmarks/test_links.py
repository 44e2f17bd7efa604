from pathlib import Path

from benchmarks.beds.virtual_network import Machine, on_this_machine
from benchmarks.links.__main__ import ROLES, inventory_in


def test_a_cluster_over_machines_has_each_role_on_its_own(tmp_path: Path) -> None:
    places = [Machine(("anywhere",), f"198.18.79.{k}") for k in range(1, 5)]
    inventory = inventory_in(tmp_path, "ours", places)
    assert inventory.connection == "ssh"
    tasks = [
        inventory.task("coordinator", 0),
        *inventory.of_role("ps"),
        *inventory.of_role("worker"),
    ]
    hosts = [task.host for task in tasks]
    assert hosts == [place.address for place in places]
    here = inventory_in(tmp_path, "here", on_this_machine(len(ROLES)))
    assert here.connection == "local"
    assert len(here.of_role("worker")) == 2
