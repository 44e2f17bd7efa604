"""What computes a training: devices named, taken, refused."""

import os
from importlib import reload
from pathlib import Path

import pytest

from cluster.__main__ import _own_devices
from cluster.jobs.busy import _numbered
from cluster.jobs.training_job import reproducible
from core.engine import environment
from core.engine.devices import HOST, computing_words, devices_here, refuse_workers_without
from core.engine.runtime import device, host_of
from core.ground.errors import UsageError
from core.inventory import Task
from core.inventory.slots import BatchSlots, DeviceSettings, on_devices
from core.server.process import visible_gpus
from tests.core.inventory.cases import THREE_NODES, problems, read
from tests.ran import python
from tests.tables import table

WORKERS = [
    Task("worker", index, node, node, 2223, 9201) for index, node in enumerate(["a", "a", "b"])
]


def described(device: str) -> DeviceSettings:
    """The devices of a job that an inventory describes so."""
    words = ["jobs.train.mode=mirrored", f"jobs.train.device={device}"]
    return read(THREE_NODES, words).jobs.train.device


def test_two_logical_devices_have_the_bits_of_single(tmp_path: Path) -> None:
    """Return parameters and losses, with odd slots, batch norm, dropout, constants."""
    assert python("-m", "tests.cluster.jobs.two_devices", tmp_path) == "equal\n"


@pytest.mark.parametrize(
    ("device", "all_of_them", "words"),
    table("cluster/jobs/rows", "absent devices"),
)
def test_a_machine_without_the_kind_refuses_with_a_remedy(
    device: str, all_of_them: bool, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        devices_here(described(device), all_of_them=all_of_them)


@pytest.mark.parametrize("all_of_them", [False, True])
def test_a_processor_is_one_device_unless_several_are_asked_for(all_of_them: bool) -> None:
    assert devices_here(DeviceSettings(), all_of_them=all_of_them) == (HOST,)


GPUS = DeviceSettings(kind="gpu")


def test_workers_without_the_device_are_named_with_their_nodes() -> None:
    there = {device("worker", 0, "gpu"), device("worker", 2, "cpu")}.__contains__
    refuse_workers_without(DeviceSettings(), WORKERS, there)
    refuse_workers_without(GPUS, WORKERS[:1], there)
    with pytest.raises(
        UsageError, match=r"no gpu at worker:1 on a, worker:2 on b: .*device\.kind=cpu"
    ):
        refuse_workers_without(GPUS, WORKERS, there)


@pytest.mark.parametrize(
    ("job", "mode", "device", "seen"),
    table("cluster/jobs/rows", "devices of a coordinator"),
)
def test_a_coordinator_sees_the_devices_that_it_computes_on_itself(
    job: str, mode: str, device: str, seen: str | None
) -> None:
    inventory = read(THREE_NODES, [f"jobs.train.mode={mode}", f"jobs.train.device={device}"])
    assert _own_devices(job, inventory).get("CUDA_VISIBLE_DEVICES") == seen


@pytest.mark.parametrize("mode", ["single", "mirrored"])
@pytest.mark.parametrize(
    ("of_the_person", "begin", "visible", "second"),
    table("cluster/jobs/rows", "visible devices"),
)
def test_gpus_without_numbers_are_those_that_the_process_may_see_also_once_tensorflow_is_prepared(
    mode: str,
    of_the_person: str | None,
    begin: str,
    visible: list[int],
    second: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "TF_FORCE_GPU_ALLOW_GROWTH"):
        monkeypatch.setenv(name, "")  # so that it is as it was afterwards
        monkeypatch.delenv(name)
    if of_the_person is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", of_the_person)
    inventory = read(THREE_NODES, [f"jobs.train.mode={mode}", "jobs.train.device.kind=gpu"])

    os.environ.update(_own_devices("train", inventory))
    reload(environment)

    seen = os.environ["CUDA_VISIBLE_DEVICES"]
    assert of_the_person in (None, seen)
    assert seen.startswith(begin)
    assert [*visible_gpus()[:2]] == visible
    assert _numbered(HOST.replace("CPU:0", "GPU:1"), inventory) == second
    reload(environment)
    os.environ.update(_own_devices("pi", inventory))
    assert os.environ["CUDA_VISIBLE_DEVICES"] == seen, "a second training here sees the same"


@pytest.mark.parametrize(
    ("settings", "said"),
    table("cluster/jobs/rows", "same bits"),
)
def test_equal_bits_are_promised_where_two_runs_were_compared(
    settings: list[str], said: bool | None
) -> None:
    train = read(THREE_NODES, [f"jobs.train.{one}" for one in settings]).jobs.train
    assert reproducible(train, {"x86"}) is said


@pytest.mark.parametrize(("mode", "kind"), table("cluster/jobs/rows", "devices of an evaluation"))
def test_an_evaluation_asks_workers_for_the_devices_that_the_mode_gives_them(
    mode: str, kind: str
) -> None:
    train = read(THREE_NODES, [f"jobs.train.mode={mode}", "jobs.train.device.kind=gpu"]).jobs.train
    assert train.device_of_workers.kind == kind


@pytest.mark.parametrize(
    ("setting", "said"),
    table("cluster/jobs/rows", "wrong devices"),
)
def test_wrong_devices_are_one_problem_each(setting: str, said: str) -> None:
    (found,) = problems(THREE_NODES, [f"jobs.train.{setting}"])
    assert said in f"{found.problem}"


def test_the_first_line_of_a_training_says_what_computes() -> None:
    gpus = (device("chief", 0, "gpu"), device("chief", 0, "gpu", 1))
    assert computing_words(DeviceSettings(), (HOST,)) == ""
    assert computing_words(GPUS, (HOST,)) == ", each with a GPU"
    assert computing_words(GPUS, gpus) == ", computed on GPU:0, GPU:1"


def test_names_of_devices() -> None:
    second = device("worker", 3, "gpu", 1)
    assert second == "/job:worker/replica:0/task:3/device:GPU:1"
    assert host_of(second) == device("worker", 3)


@pytest.mark.parametrize(("device", "expected"), table("cluster/jobs/rows", "own devices"))
def test_each_worker_of_a_machine_takes_a_device_of_its_own(
    device: str, expected: list[int | None]
) -> None:
    settings = described(device)
    assert [settings.of_worker(worker, WORKERS) for worker in WORKERS] == expected
    assert GPUS.of_worker(WORKERS[2], WORKERS[2:]) == 0


@pytest.mark.parametrize(
    ("mode", "kind", "devices", "number"),
    table("cluster/jobs/rows", "slots"),
)
def test_slots_go_by_the_devices(mode: str, kind: str, devices: int, number: int) -> None:
    assert on_devices(mode, kind, devices, 100, BatchSlots(2, "cores")).number == number
