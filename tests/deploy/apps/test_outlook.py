"""The outlook of a training, computed by hand."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cluster.apps.measured import MeasuredStep
from cluster.errors import ClusterError
from cluster.inventory import Inventory
from cluster.inventory.loading import loads
from cluster.inventory.schema import THIS_MACHINE
from cluster.inventory.templates import local_inventory
from deploy.apps.nodes import memory_of_nodes
from deploy.apps.outlook import (
    CALL_SECONDS,
    COORDINATOR_BYTES,
    COPIES_ON_A_SERVER,
    SERVER_BYTES,
    WORKER_BYTES,
    NodeMemory,
    compute_seconds,
    lines,
    outlook,
    outlook_json,
    role_memory,
    speed_of,
    traffic_of,
)
from deploy.cluster.fleet import Fleet
from deploy.cluster.local import Local

STEP = MeasuredStep(
    app="mine", task="classification", input_shape=[8, 8, 1], outputs=10, examples=1437, parameters=10**6,
    statistics=0, slots=2, remembered=0, batch_size=128, micro_batches=4, cores=4, loss=2.3, first_loss_seconds=9.0,
    steps=30, step_seconds=0.8, gradient_seconds=0.8, step_bytes=50_000_000, process_bytes=300_000_000,
    pull_bytes=4 * 10**6, push_bytes=2 * 10**6,
)  # fmt: skip
LINK = 8 * 4.0
"""Megabits: 4 MB a second, so that a pull takes a second and a push half of one."""


def inventory(*overrides: str, servers: int = 1) -> Inventory:
    settings = ("jobs.train.batch_size=128", *overrides)
    return loads(local_inventory(2, servers), "here", settings, path=Path("here.yaml"), machine=None)


def train(*overrides: str) -> Any:
    return inventory(*overrides).jobs.train


def test_workers_that_share_a_batch_have_a_share_of_the_work_each() -> None:
    sync = train("jobs.train.mode=sync")
    assert compute_seconds(sync, STEP, 1) == pytest.approx(0.8)
    assert compute_seconds(sync, STEP, 2) == pytest.approx(0.4)
    # 16 pieces of 8 windows are the most: four workers keep four cores busy, eight no longer.
    assert compute_seconds(sync, STEP, 4) == pytest.approx(0.2)
    assert compute_seconds(sync, STEP, 8) == pytest.approx(0.2)
    fixed = train("jobs.train.mode=sync", "jobs.train.micro_batches=4")
    assert compute_seconds(fixed, STEP, 2) == pytest.approx(0.8), "the other cores of each are idle"
    partly = replace(STEP, gradient_seconds=0.6)
    assert compute_seconds(sync, partly, 2) == pytest.approx(0.2 + 0.3), "only gradients are shared"
    assert compute_seconds(train("jobs.train.mode=async"), partly, 2) == pytest.approx(0.8)


def test_the_links_of_the_servers_are_shared() -> None:
    sync = train("jobs.train.mode=sync")
    one, four = (speed_of(sync, STEP, workers, 1, LINK) for workers in (1, 4))
    assert one.seconds == pytest.approx(0.8 + 1.5 + CALL_SECONDS)
    assert four.seconds == pytest.approx(0.2 + 4 * 1.5 + CALL_SECONDS)
    assert four.gain == pytest.approx(0.8 / four.seconds)
    assert four.on_the_wire == pytest.approx(6.0 / four.seconds)
    assert speed_of(sync, STEP, 4, 4, LINK).seconds == pytest.approx(0.2 + 1.5 + CALL_SECONDS)


def test_without_waiting_the_slowest_of_workers_servers_and_coordinator_decides() -> None:
    free = train("jobs.train.mode=async")
    assert speed_of(free, STEP, 1, 1, LINK).seconds == pytest.approx(0.8 + 1.5 + CALL_SECONDS)
    assert speed_of(free, STEP, 2, 1, LINK).seconds == pytest.approx((0.8 + 1.5 + CALL_SECONDS) / 2)
    assert speed_of(free, STEP, 16, 1, LINK).seconds == pytest.approx(1.0), "a pull a batch leaves the server"
    tiny = replace(STEP, step_seconds=1e-4, gradient_seconds=1e-4, pull_bytes=400, push_bytes=400)
    assert speed_of(free, tiny, 16, 1, LINK).seconds == pytest.approx(CALL_SECONDS)


def test_several_batches_between_two_transfers() -> None:
    local = train("jobs.train.mode=local", "jobs.train.local.steps=4")
    assert speed_of(local, STEP, 1, 1, LINK).seconds == pytest.approx((4 * 0.8 + 1.5 + CALL_SECONDS) / 4)
    assert traffic_of(local, STEP, 2) == 1_500_000


def test_workers_that_exchange_among_themselves() -> None:
    ring = train("jobs.train.mode=allreduce")
    assert speed_of(ring, STEP, 1, 1, LINK).seconds == pytest.approx(0.8 + CALL_SECONDS)
    assert speed_of(ring, STEP, 4, 1, LINK).seconds == pytest.approx(0.2 + 1.5 * 3 / 4 + CALL_SECONDS)
    assert traffic_of(ring, STEP, 4) == round(2 * 6_000_000 * 3 / 4)
    assert traffic_of(train("jobs.train.mode=async"), STEP, 4) == 6_000_000


def test_a_mode_without_a_cluster_is_the_step_itself() -> None:
    alone = train("jobs.train.mode=single")
    assert speed_of(alone, STEP, 8, 1, LINK).gain == 1.0
    assert traffic_of(alone, STEP, 8) == 0


def test_memory_counts_vectors_of_the_model() -> None:
    vector = 4 * 10**6
    free = role_memory(train("jobs.train.mode=async"), STEP, 1)
    assert free.ps == SERVER_BYTES + (1 + 2 + COPIES_ON_A_SERVER) * vector
    assert free.worker == WORKER_BYTES + 50_000_000
    assert free.coordinator == COORDINATOR_BYTES + 300_000_000
    sync = role_memory(train("jobs.train.mode=sync", "jobs.train.micro_batches=16"), STEP, 1)
    assert sync.ps == free.ps + 17 * vector, "a row a micro-batch, and their sum"
    assert (
        role_memory(train("jobs.train.mode=async"), STEP, 2).ps == SERVER_BYTES + (3 + COPIES_ON_A_SERVER) * vector // 2
    )
    assert role_memory(train("jobs.train.mode=allreduce"), STEP, 1).worker == free.worker + 3 * vector
    kept = replace(STEP, remembered=2)
    assert role_memory(train("jobs.train.mode=async"), kept, 1).worker == free.worker + 2 * vector


def test_a_node_fits_within_its_share() -> None:
    small = NodeMemory("rpi", ("worker",), 300 * 2**20, None)
    assert (small.fits, small.smallest_board) == (True, 512)
    assert NodeMemory("rpi", ("worker",), 500 * 2**20, None).smallest_board == 1024
    assert NodeMemory("rpi", ("worker",), 2**40, None).smallest_board is None
    assert not NodeMemory("rpi", ("worker",), 2**30, 2**29).fits


def test_a_cluster_on_this_machine_shares_its_memory() -> None:
    found = outlook(inventory(), STEP, 300.0, {THIS_MACHINE: 10**9})
    (here,) = found.memory
    roles = role_memory(inventory().jobs.train, STEP, 1)
    assert here.needed == roles.ps + 2 * roles.worker + roles.coordinator
    assert (here.limit, here.fits) == (8 * 10**8, here.needed <= 8 * 10**8)


def test_both_shapes_say_the_same() -> None:
    found = outlook(inventory("jobs.train.mode=sync"), STEP, 300.0, {THIS_MACHINE: 64 * 10**9})
    shown = json.loads(json.dumps(outlook_json(STEP, found)))
    assert [each["workers"] for each in shown["speed"]] == [1, 2, 4, 8, 16]
    assert shown["parameters"] == 10**6
    assert shown["memory"][0]["fits"] is True
    text = "\n".join(lines(STEP, found))
    for words in ("1,000,000 parameters", "6.00 MB a step", "mode sync, codec fp32", "fits", " 16 workers"):
        assert words in text
    assert "wire: nothing" in "\n".join(lines(STEP, outlook(inventory("jobs.train.mode=single"), STEP, 300.0, {})))


def test_figures_survive_the_way_between_processes() -> None:
    assert MeasuredStep.of_json(STEP.to_json()) == STEP


@pytest.mark.parametrize("text", ["", "x", "{}", "[]", "null", STEP.to_json().replace("1000000", '"many"')])
def test_other_answers_are_one_line(text: str) -> None:
    with pytest.raises(ClusterError, match="the app's process answered with something else than its figures") as at:
        MeasuredStep.of_json(text)
    assert "\n" not in str(at.value)


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
    found = outlook(machines, STEP, 300.0, {"big": 8 * 2**30, "small": 2**27})
    assert [(each.node, each.roles, each.fits) for each in found.memory] == [
        ("big", ("ps", "coordinator"), True),
        ("small", ("worker",), False),
        ("silent", ("worker",), True),
    ]
    said = "\n".join(lines(STEP, found))
    assert "memory: small: worker: 160 MB of 107 MB that roles may take: does NOT fit" in said
    assert "memory: silent: worker: 160 MB: fits on a board of 512 MB" in said


class Answers(Local):
    """A node that says what it is made to say."""

    def __init__(self, name: str, said: str | ClusterError) -> None:
        super().__init__(name)
        self._said = said

    def run(self, *words: Any, **more: Any) -> Any:
        del more
        assert words == (["grep", "-m", "1", "MemTotal:", "/proc/meminfo"],)
        if isinstance(self._said, ClusterError):
            raise self._said
        return super().run(["printf", "%s", self._said])


def test_what_nodes_say_is_believed_if_it_is_a_number() -> None:
    said: dict[str, str | ClusterError] = {
        "one": "MemTotal:        3884392 kB\n",
        "two": "MemTotal: -1 kB\n",
        "three": "9" * 50,
        "gone": ClusterError("gone: does not answer"),
    }
    known, silent = memory_of_nodes(Fleet([Answers(name, text) for name, text in said.items()], parallel=1))
    assert known == {"one": 3884392 * 1024}
    assert silent["gone"] == "does not answer"
    assert set(silent) == {"two", "three", "gone"}
