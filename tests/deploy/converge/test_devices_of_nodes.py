"""What a check says about the GPUs and TPUs of a node, for what `jobs.train.device` asks."""

from dataclasses import replace
from pathlib import Path

import pytest

from cluster.inventory import Inventory
from deploy.converge import devices
from deploy.converge.code import ReleaseChoice
from deploy.converge.devices import DEVICES, device_findings, devices_here, has_gpu
from deploy.converge.machine_facts import Questions
from deploy.converge.preflight import examine
from deploy.converge.subject import NodeAnswer
from deploy.converge.survey import fact_script
from deploy.release.code_wheel import CodeWheel
from deploy.release.requirements import Target, committed, environment_key, pins
from tests.deploy.converge.pi import untouched
from tests.inventory.cases import read

NODES = """\
schema: 1
cluster: bench
connection: ssh
nodes:
  - {name: head, address: 192.168.1.16, roles: [storage, ps, coordinator]}
  - {name: box, address: 192.168.1.17, roles: [worker, {worker: {port: 3001, metrics_port: 3002}}]}
storage: {server: head}
jobs:
  train: {mode: sync}
"""
TWO = ("NVIDIA A2", "NVIDIA A2")


def found(there: tuple[str, ...], *settings: str, node: str = "box", machine: str = "x86_64") -> list[tuple[str, str]]:
    inventory = read(NODES, [f"jobs.train.{setting}" for setting in settings])
    tasks = [task for task in inventory.tasks() if task.node == node]
    said = list(device_findings(inventory, tasks, {"gpu": there, "tpu": ()}, machine))
    assert all(topic == "devices" for _, topic, _ in said)
    return [(level, line) for level, _, line in said]


def test_a_node_without_devices_that_computes_on_processors_is_not_mentioned() -> None:
    assert found(()) == []


def test_a_gpu_that_nothing_uses_is_mentioned() -> None:
    assert found(TWO) == [("ok", "2 GPUs that no training uses: jobs.train.device.kind is cpu")]
    assert found(TWO[:1], "device.kind=gpu", node="head") == [("ok", "1 GPU that no training uses: no worker is here")]


def test_each_worker_takes_one() -> None:
    assert found(TWO, "device.kind=gpu") == [("ok", "2 GPUs (NVIDIA A2), all of them used")]


def test_the_third_gpu_is_noticed_before_it_stands_idle() -> None:
    ((level, line),) = found((*TWO, "NVIDIA T4"), "device.kind=gpu")
    assert level == "warning"
    assert line == "3 GPUs (NVIDIA A2, NVIDIA T4), of which 2 will stand idle: give the node as many workers"


@pytest.mark.parametrize(
    ("there", "settings", "machine", "said"),
    [
        ((), ["device.kind=gpu"], "x86_64", "no gpu is there, and jobs.train.device asks for one: install NVIDIA's"),
        (TWO, ["device.kind=gpu"], "aarch64", "TensorFlow's wheel with CUDA exists for x86_64 alone, this is aarch64"),
        (TWO[:1], ["device.kind=gpu"], "x86_64", "1 GPU (NVIDIA A2) for 2 workers, each of which takes one: run fewer"),
        (TWO, ["device={kind: gpu, ids: [1]}"], "x86_64", "2 GPUs (NVIDIA A2) for 2 workers"),
        (TWO, ["device={kind: gpu, ids: [0, 5]}"], "x86_64", "2 GPUs (NVIDIA A2) for 2 workers"),
        (TWO, ["device.kind=tpu"], "x86_64", "no tpu is there, and jobs.train.device asks for one: look for /dev/"),
    ],
)
def test_what_is_missing_is_a_problem_with_a_remedy(
    there: tuple[str, ...], settings: list[str], machine: str, said: str
) -> None:
    ((level, line),) = found(there, *settings, machine=machine)
    assert level == "problem"
    assert said in line


def test_training_alone_concerns_the_node_of_the_coordinator() -> None:
    single, mirrored = ("mode=single", "device.kind=gpu"), ("mode=mirrored", "device.kind=gpu")
    ((level, line),) = found(TWO, *single, node="head")
    assert (level, "1 will stand idle: mode mirrored uses all" in line) == ("warning", True)
    assert found(TWO, *mirrored, node="head") == [("ok", "2 GPUs (NVIDIA A2), all of them used")]
    assert found((), *single, node="box") == []


def test_a_node_is_asked_and_its_answer_read() -> None:
    assert devices.NVIDIA in fact_script(Questions())
    answer = NodeAnswer({"gpus": "\nNVIDIA A2\nNVIDIA T4\n", "tpus": "/dev/accel0"}, 0.0, 0.0)
    facts = untouched(more=DEVICES.read(answer))
    assert facts.more == {"gpus": ("NVIDIA A2", "NVIDIA T4"), "tpus": ("/dev/accel0",)}
    assert not has_gpu(facts), "a Pi: no wheel with CUDA"
    assert has_gpu(replace(facts, machine="x86_64"))
    assert DEVICES.read(NodeAnswer({}, 0.0, 0.0)) == {"gpus": (), "tpus": ()}


def test_nodes_with_a_gpu_get_tensorflow_with_cuda_and_all_others_the_small_one() -> None:
    pi = untouched(more={"gpus": TWO})
    server = replace(pi, machine="x86_64")
    plain, cuda = committed(), committed(cuda=True)
    asked = ReleaseChoice(CodeWheel(Path("x.whl"), "0" * 16, "0" * 64, "1.0"), plain, cuda)
    assert asked.packages_for(server) == cuda
    assert [asked.packages_for(one) for one in (pi, replace(server, more={}))] == [plain, plain]
    assert replace(asked, cuda_requirements=None).packages_for(server) == plain
    assert asked.environment_for(server) != asked.environment_for(replace(server, more={}))
    assert environment_key(plain, "3.11", "aarch64") == environment_key(cuda, "3.11", "aarch64")
    names = {text: {pin.name for pin in pins(text, Target("3.11", "x86_64"))} for text in (plain, cuda)}
    assert names[plain] - names[cuda] == {"tensorflow-cpu"}
    assert {"tensorflow", "nvidia-cudnn-cu12"} <= names[cuda] - names[plain]


def test_a_check_of_a_node_has_it() -> None:
    from deploy.converge.memory_estimate import of_inventory
    from deploy.converge.subject import NodeWish

    inventory: Inventory = read(NODES, ["jobs.train.device.kind=gpu"])
    facts = untouched("192.168.1.17")
    memory = of_inventory(inventory, {"box": 4, "head": 4})
    lines = [one.line for one in examine(NodeWish(inventory, "box", memory, None), facts)]
    assert any("exists for x86_64 alone, this is aarch64" in line for line in lines)


def test_this_machine_is_looked_at_like_a_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, text in enumerate(["Model: \t\t NVIDIA A2\nIRQ: 7\n", "no model\n"]):
        (tmp_path / f"0000:0{number}").mkdir()
        (tmp_path / f"0000:0{number}" / "information").write_text(text)
    monkeypatch.setattr(devices, "NVIDIA", str(tmp_path))
    assert devices_here()["gpu"] == ("NVIDIA A2", "GPU")
