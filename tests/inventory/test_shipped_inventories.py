"""The two inventories in the repository are what their comments and the docs say."""

import json

import pytest

from cluster.inventory import Constant, OneCycle, TrainJob
from cluster.inventory.templates import hosts_inventory, local_inventory
from cluster.models.thesis import ThesisModel
from ps_node.optimizers.adam import AdamOptions as Adam
from ps_node.optimizers.adam import AdamWOptions as AdamW
from tests.inventory.cases import PROJECT, machine, read

THESIS = (PROJECT / "inventory.yaml").read_text(encoding="utf-8")
LOCAL = (PROJECT / "inventories" / "local.yaml").read_text(encoding="utf-8")


def test_the_thesis_cluster_is_sixteen_pis_in_a_row() -> None:
    inventory = read(THESIS)

    assert inventory.connection == "ssh"
    assert [node.name for node in inventory.nodes] == [f"rpi{number:02d}" for number in range(1, 17)]
    assert [node.address for node in inventory.nodes] == [f"192.168.1.{number}" for number in range(16, 32)]
    assert len(inventory.of_role("worker")) == 16


def test_rpi11_of_the_thesis_cluster_has_every_role() -> None:
    inventory = read(THESIS)

    assert [entry.role for entry in inventory.node("rpi11").roles] == ["storage", "ps", "coordinator", "worker"]
    assert inventory.task("ps", 0).address == "192.168.1.26:2222"
    assert inventory.task("coordinator", 0).metrics_address == "192.168.1.26:9202"
    assert inventory.storage is not None
    assert inventory.storage.server == "rpi11"


def test_one_machine_runs_one_server_two_workers_and_the_coordinator() -> None:
    inventory = read(LOCAL)

    assert inventory.connection == "local"
    assert [task.name for task in inventory.tasks()] == ["ps:0", "worker:0", "worker:1", "coordinator:0"]
    assert {task.host for task in inventory.tasks()} == {"127.0.0.1"}


@pytest.mark.parametrize("text", [THESIS, LOCAL])
def test_pi_calibrates_before_the_shipped_recipe_trains(text: str) -> None:
    inventory = read(text)
    train = inventory.jobs.train

    assert inventory.jobs.order == ("pi", "train")
    assert train.recipe == "shipped"
    assert train.model == ThesisModel(n_layers_in_highway=0, n_stacked_layers=3, bidirectional=False, hidden=32)
    assert train.optimizer == AdamW(learning_rate=0.002)
    assert train.schedule == OneCycle()
    assert (train.clip_norm, train.label_smoothing, train.batch_size) == (1.0, 0.05, 100)


@pytest.mark.parametrize("text", [THESIS, LOCAL, hosts_inventory("192.168.1.16-31"), local_inventory(64)])
def test_the_number_of_micro_batches_is_left_to_the_job(text: str) -> None:
    assert read(text).jobs.train.micro_batches == "auto"


@pytest.mark.parametrize("text", [THESIS, LOCAL, hosts_inventory("192.168.1.16-31"), local_inventory()])
def test_the_recipe_of_the_thesis_is_one_word_away_and_comes_whole(text: str) -> None:
    shipped, train = read(text).jobs.train, read(text, ["jobs.train.recipe=thesis"]).jobs.train

    own = {"epochs": shipped.epochs, "micro_batches": shipped.micro_batches}
    assert train == TrainJob.model_validate({"recipe": "thesis", **own})
    assert (train.optimizer, train.schedule) == (Adam(learning_rate=0.001), Constant())
    assert (train.clip_norm, train.l2, train.label_smoothing) == (15.0, 0.005, 0.0)
    assert (train.keep_probability, train.replay_worst_batches) == (0.85, 5)
    assert train.model == ThesisModel(hidden=32), "plain layers have no batch norm there"
    assert shipped == TrainJob.model_validate(own)


@pytest.mark.parametrize("text", [THESIS, LOCAL])
def test_an_inventory_goes_into_a_result_file(text: str) -> None:
    inventory = read(text)

    dumped = json.loads(inventory.model_dump_json(by_alias=True))

    assert dumped["schema"] == 1
    assert dumped["jobs"]["train"]["optimizer"]["learning_rate"] == 0.002
    assert dumped["path"] == "mine.yaml"


def test_a_pi_of_the_thesis_cluster_checks_its_own_interface() -> None:
    here = machine({"lo": ("127.0.0.1",), "eth0": ("192.168.1.18",)}, hostname="rpi03")

    assert read(THESIS, on=here).task("worker", 2).host == "192.168.1.18"
