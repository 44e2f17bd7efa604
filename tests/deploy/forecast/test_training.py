"""The forecast of a training, computed by hand."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cluster.apps.measured import MeasuredStep
from core.ground.errors import ClusterError
from core.inventory import Inventory
from core.inventory.loading import loads
from core.inventory.schema import THIS_MACHINE
from core.inventory.templates import local_inventory
from deploy.cluster.fleet import Fleet
from deploy.forecast.training import (
    COORDINATOR_BYTES,
    COPIES_ON_A_SERVER,
    SERVER_BYTES,
    WORKER_BYTES,
    RolesDemand,
    forecast,
    forecast_json,
    lines,
    memory_of_nodes,
    role_memory,
    traffic_of,
)
from tests.deploy.local_shell import Heard
from tests.deploy.tables import Tables

rows = Tables(__file__)

STEP = MeasuredStep(
    app="mine",
    task="classification",
    input_shape=(8, 8, 1),
    outputs=10,
    examples=1437,
    parameters=10**6,
    statistics=0,
    slots=2,
    remembered=0,
    batch_size=128,
    batch_slots=4,
    cores=4,
    loss=2.3,
    first_loss_seconds=9.0,
    steps=30,
    step_seconds=0.8,
    step_bytes=50_000_000,
    process_bytes=300_000_000,
    pull_bytes=4 * 10**6,
    push_bytes=2 * 10**6,
)


def inventory(*overrides: str, servers: int = 1) -> Inventory:
    settings = ("jobs.train.batch_size=128", *overrides)
    return loads(
        local_inventory(2, servers), "here", settings, path=Path("here.yaml"), machine=None
    )


def train(mode: str) -> Any:
    """The settings of a mode, behind which others may stand."""
    name, *overrides = mode.split()
    return inventory(f"jobs.train.mode={name}", *overrides).jobs.train


@rows("mode", "workers", "traffic")
def test_bytes_of_a_batch(mode: str, workers: int, traffic: int) -> None:
    assert traffic_of(train(mode), STEP, workers) == traffic


def test_memory_counts_vectors_of_the_model() -> None:
    vector = 4 * 10**6
    free = role_memory(train("async"), STEP, 1)
    assert free.ps == SERVER_BYTES + (1 + 2 + COPIES_ON_A_SERVER) * vector
    assert free.worker == WORKER_BYTES + 50_000_000
    assert free.coordinator == COORDINATOR_BYTES + 300_000_000
    sync = role_memory(train("sync jobs.train.slots=16"), STEP, 1)
    assert sync.ps == free.ps + 17 * vector, "a row a slot, and their sum"
    two = role_memory(train("async"), STEP, 2)
    assert two.ps == SERVER_BYTES + (3 + COPIES_ON_A_SERVER) * vector // 2
    assert role_memory(train("allreduce"), STEP, 1).worker == free.worker + 3 * vector
    kept = replace(STEP, remembered=2)
    assert role_memory(train("async"), kept, 1).worker == free.worker + 2 * vector


def test_a_node_fits_within_its_share() -> None:
    small = RolesDemand("rpi", 300 * 2**20, None)
    assert (small.fits, small.smallest_board) == (True, 512)
    assert RolesDemand("rpi", 500 * 2**20, None).smallest_board == 1024
    assert RolesDemand("rpi", 2**40, None).smallest_board is None
    assert not RolesDemand("rpi", 2**30, 2**29).fits


def test_both_shapes_say_the_same() -> None:
    found = forecast(inventory("jobs.train.mode=sync"), STEP, {THIS_MACHINE: 64 * 10**9})
    shown = json.loads(json.dumps(forecast_json(STEP, found)))
    assert (shown["parameters"], shown["memory"][0]["fits"]) == (10**6, True)
    text = "\n".join(lines(STEP, found))
    for words in ("1,000,000 parameters", "6.00 MB a step", "mode sync, codec fp32", "fits"):
        assert words in text
    alone = forecast(inventory("jobs.train.mode=single"), STEP, {})
    assert "wire: nothing" in "\n".join(lines(STEP, alone))


def test_figures_survive_the_way_between_processes() -> None:
    assert MeasuredStep.of_json(STEP.to_json()) == STEP


@pytest.mark.parametrize(
    "text", ["", "x", "{}", "[]", "null", STEP.to_json().replace("1000000", '"many"')]
)
def test_other_answers_are_one_line(text: str) -> None:
    with pytest.raises(
        ClusterError,
        match=r"^[^\n]*the app's process answered with something else than its figures[^\n]*$",
    ):
        MeasuredStep.of_json(text)


MACHINES = """\
schema: 1
cluster: three
connection: ssh
storage: {server: big}
nodes:
  - {name: big, address: 192.168.1.16, roles: [storage, ps, coordinator]}
  - {name: small, address: 192.168.1.17, roles: [worker]}
  - {name: silent, address: 192.168.1.18, roles: [worker]}
jobs: {train: {batch_size: 128}}
"""


def test_nodes_are_compared_with_their_own_memory() -> None:
    machines = loads(MACHINES, "here", (), path=Path("here.yaml"), machine=None)
    found = forecast(machines, STEP, {"big": 8 * 2**30, "small": 2**27})
    assert [(each.node, each.roles, each.fits) for each in found.memory] == [
        ("big", ("ps", "coordinator"), True),
        ("small", ("worker",), False),
        ("silent", ("worker",), True),
    ]
    said = "\n".join(lines(STEP, found))
    assert "memory: small: worker: 128 MB of 107 MB that roles may take: does NOT fit" in said
    assert "memory: silent: worker: 128 MB: fits on a board of 512 MB" in said


def test_what_nodes_say_is_believed_if_it_is_a_number() -> None:
    answers: dict[str, str | Exception] = {
        "one": "MemTotal:        3884392 kB\n",
        "two": "MemTotal: -1 kB\n",
        "three": "9" * 50,
        "gone": ClusterError("gone: does not answer"),
    }
    nodes = [Heard(name, {"MemTotal:": answer}) for name, answer in answers.items()]
    known, silent = memory_of_nodes(Fleet(nodes, parallel=1))
    assert known == {"one": 3884392 * 1024}
    assert silent["gone"] == "does not answer"
    assert set(silent) == {"two", "three", "gone"}
