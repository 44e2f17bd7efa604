"""What a program finds in its environment."""

import json
import os
from pathlib import Path

import pytest

from cluster.programs.roster import (
    ROOT,
    chief_config,
    chief_of,
    environment_of,
    worker_variables,
    workers_of,
)
from core.inventory import Inventory
from deploy.jobs.program_runners import program_tasks
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
    assert {
        name: found[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    } == {
        "RANK": "2",
        "WORLD_SIZE": "16",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
    }
    assert (found["MASTER_ADDR"], found["MASTER_PORT"]) == ("192.168.1.16", "4000")


def test_a_program_gets_the_person_s_variables_and_none_of_ours(tmp_path: Path) -> None:
    base = {
        "HOME": "/home/anna",
        "PYTHONPATH": os.pathsep.join([str(ROOT), "/mine"]),
        "PYTHONSAFEPATH": "1",
        "PATH": "/usr/bin",
        "PSCLUSTER_TOKEN": "secret",
        "PSCLUSTER_SUPERVISOR": "x",
        "PSCLUSTER_DATA": "/data",
        "TF_CONFIG": "old",
        "GRPC_FAIL_FAST": "true",
        "NOTIFY_SOCKET": "/run/x",
    }
    found = environment_of(
        base, tmp_path / "p.py", tmp_path / "files", "mark", {"RANK": "1"}, "/own/python"
    )
    assert found == {
        "HOME": "/home/anna",
        "PYTHONPATH": "/mine",
        "PSCLUSTER_DATA": "/data",
        "RANK": "1",
        "PATH": "/own:/usr/bin",
        "GRPC_FAIL_FAST": "true",
        "TF_CPP_MIN_LOG_LEVEL": "1",
        "PYTHONUNBUFFERED": "1",
        "PSCLUSTER_RUN": str(tmp_path / "files"),
        "PSCLUSTER_PROGRAM": "mark",
    }


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
