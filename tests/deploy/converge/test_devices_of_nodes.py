"""What a check says about the GPUs and TPUs of a node, for what `jobs.train.device` asks."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploy.converge import hardware
from deploy.converge.code import ReleaseChoice
from deploy.converge.hardware import DEVICES, NVIDIA, device_findings, devices_here, has_gpu
from deploy.converge.machine_facts import Questions
from deploy.converge.survey import fact_script
from deploy.release.code_wheel import CodeWheel
from deploy.release.requirements import Target, committed, environment_key, pins
from tests.core.inventory.cases import read
from tests.deploy.converge.examined import findings
from tests.deploy.converge.pi import untouched
from tests.deploy.converge.tables import rows

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


@rows("devices")
def test_each_device_is_for_a_worker_and_each_worker_has_one(row: Any) -> None:
    there = row.get("there", ())
    if isinstance(there, int):
        there = TWO[:there]
    inventory = read(NODES, [f"jobs.train.{setting}" for setting in row.get("settings", ())])
    tasks = [task for task in inventory.tasks() if task.node == row.get("node", "box")]
    of_kind = {"gpu": there, "tpu": ()}
    said = list(device_findings(inventory, tasks, of_kind, row.get("machine", "x86_64")))
    if "line" not in row:
        assert said == []
        return
    ((level, topic, line),) = said
    assert (level, topic) == (row["level"], "devices")
    if level == "ok":
        assert line == row["line"]
    else:
        assert row["line"] in line


def readings(answer: dict[str, str]) -> dict[str, Any]:
    return {name: DEVICES.facts[name](text) for name, text in answer.items()}


def test_a_node_is_asked_and_its_answer_read() -> None:
    assert NVIDIA in fact_script(Questions())
    facts = untouched(more=readings({"gpus": "\nNVIDIA A2\nNVIDIA T4\n", "tpus": "/dev/accel0"}))
    assert facts.more == {"gpus": ("NVIDIA A2", "NVIDIA T4"), "tpus": ("/dev/accel0",)}
    assert not has_gpu(facts), "a Pi: no wheel with CUDA"
    assert has_gpu(replace(facts, machine="x86_64"))
    assert readings({"gpus": "", "tpus": ""}) == {"gpus": (), "tpus": ()}


def test_nodes_with_a_gpu_get_tensorflow_with_cuda_and_all_others_the_small_one() -> None:
    pi = untouched(more={"gpus": TWO})
    server = replace(pi, machine="x86_64")
    without = replace(server, more={})
    plain = committed()
    cuda = committed(cuda=True)
    asked = ReleaseChoice(CodeWheel(Path("x.whl"), "0" * 16, "0" * 64, "1.0"), plain, cuda)
    assert [asked.packages_for(one) for one in (server, pi, without)] == [cuda, plain, plain]
    assert replace(asked, cuda_requirements=None).packages_for(server) == plain
    assert asked.environment_for(server) != asked.environment_for(without)
    assert environment_key(plain, "3.11", "aarch64") == environment_key(cuda, "3.11", "aarch64")
    small, large = (
        {pin.name for pin in pins(text, Target("3.11", "x86_64"))} for text in (plain, cuda)
    )
    assert small - large == {"tensorflow-cpu"}
    assert {"tensorflow", "nvidia-cudnn-cu12"} <= large - small


def test_a_check_of_a_node_has_it() -> None:
    lines = [one.line for one in findings("box", read(NODES, ["jobs.train.device.kind=gpu"]))]
    assert any("exists for x86_64 alone, this is aarch64" in line for line in lines)


def test_this_machine_is_looked_at_like_a_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, text in enumerate(["Model: \t\t NVIDIA A2\nIRQ: 7\n", "no model\n"]):
        (tmp_path / f"0000:0{number}").mkdir()
        (tmp_path / f"0000:0{number}" / "information").write_text(text)
    monkeypatch.setattr(hardware, "NVIDIA", str(tmp_path))
    assert devices_here()["gpu"] == ("NVIDIA A2", "GPU")
