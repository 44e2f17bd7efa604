"""What a program finds in its environment."""

import json
import os
from pathlib import Path

import pytest

from cluster.programs.program import (
    ROOT,
    chief_config,
    chief_of,
    environment_of,
    worker_variables,
    workers_of,
)
from core.inventory import Inventory
from deploy.jobs.sweeps import program_tasks
from tests.deploy.converge.pi import thesis
from tests.tables import table


@pytest.fixture
def inventory() -> Inventory:
    return thesis()


def test_the_chief_sees_the_roles_of_the_inventory(inventory: Inventory) -> None:
    config = json.loads(chief_config(inventory))
    assert config["task"] == {"type": "chief", "index": 0}
    assert config["cluster"]["ps"] == ["192.168.1.26:2222"]
    assert config["cluster"]["chief"] == [chief_of(inventory).address] == ["192.168.1.26:2224"]
    assert config["cluster"]["worker"] == [f"192.168.1.{host}:2223" for host in range(16, 32)]


def test_workers_are_equals_with_ports_of_their_own(inventory: Inventory) -> None:
    members = workers_of(inventory, range(3000, 3016))
    found = worker_variables(members, members[2], 4000)
    config = json.loads(found["TF_CONFIG"])
    assert config["task"] == {"type": "worker", "index": 2}
    assert config["cluster"]["worker"][2] == "192.168.1.18:3002"
    assert len(config["cluster"]["worker"]) == 16
    ranks = table("cluster/programs/rows", "ranks")
    assert {name: found[name] for name in ranks} == ranks
    assert (found["MASTER_ADDR"], found["MASTER_PORT"]) == ("192.168.1.16", "4000")


def test_a_program_gets_the_person_s_variables_and_none_of_ours(tmp_path: Path) -> None:
    shell = table("cluster/programs/rows", "shell")
    base = {**shell["before"], "PYTHONPATH": os.pathsep.join([str(ROOT), "/mine"])}
    found = environment_of(
        base, tmp_path / "p.py", tmp_path / "files", "mark", {"RANK": "1"}, "/own/python"
    )
    assert found == {**shell["after"], "PSCLUSTER_RUN": str(tmp_path / "files")}


@pytest.mark.parametrize(
    ("source", "asks"),
    table("cluster/programs/rows", "tf_keras"),
)
def test_keras_2_is_what_tf_keras_asks_for(tmp_path: Path, source: str, asks: bool) -> None:
    program = tmp_path / "p.py"
    program.write_text(source)
    assert ("TF_USE_LEGACY_KERAS" in environment_of({}, program, tmp_path, "m", {})) is asks


def test_runners_of_one_node_never_take_the_same_port(inventory: Inventory) -> None:
    tasks = [task for _, task in program_tasks(inventory, "p.py", "secret")]
    assert {task.lead for task in tasks} == {"192.168.1.26:2240"}
    assert [task.member for task in tasks] == [f"worker:{index}" for index in range(16)]
    assert all(2240 not in task.ports and len(task.ports) == 31 for task in tasks)
