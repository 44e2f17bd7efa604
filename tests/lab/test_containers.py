"""The image, and a training whose three processes are containers as the manifests have them."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from core.ground.errors import ExitCode
from core.inventory.loading import loads
from deploy.render.kubernetes import TLS_FOLDER, TOKEN_FOLDER, VERSIONS_FOLDER, pods_of
from deploy.render.kubernetes import service_words as words_of_pod
from recognise.service.certificates import server_certificate
from tests.core.inventory.cases import machine
from tests.deploy.playing import eventually
from tests.habits import needs
from tests.lab.containers import ADDRESSES, MEGABYTES, STATE, STORE, UID, Box, Boxes, why_not
from tests.recognise.service.exports import export, windows
from tests.recognise.service.running import as_json
from tools import build_image

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1200)]

INVENTORY = f"""\
schema: 1
cluster: boxes
connection: ssh
nodes:
  - {{name: boxes-ps-0, address: {ADDRESSES["ps"]}, roles: [ps]}}
  - {{name: boxes-worker-0, address: {ADDRESSES["worker"]}, roles: [worker]}}
  - {{name: coordinator, address: boxes-coordinator, roles: [coordinator]}}
runs: {STATE}/runs
jobs:
  train: {{epochs: 1, data: {{source: synthetic}}, validation_subjects: 1}}
"""
SERVING = f"""\
schema: 1
cluster: boxes
connection: ssh
nodes:
  - {{name: a, address: {ADDRESSES["ps"]}, roles: [ps, coordinator]}}
  - {{name: b, address: {ADDRESSES["worker"]}, roles: [worker, service]}}
"""


@pytest.fixture(scope="module")
def image() -> str:
    needs.possible(why_not())
    build_image.build(STORE)
    return build_image.TAG


@pytest.fixture
def boxes(image: str, tmp_path: Path) -> Iterator[Boxes]:
    needs.network_namespace()
    with Boxes.up(tmp_path) as boxes:
        yield boxes


def _folder(tmp_path: Path, name: str) -> Path:
    folder = tmp_path / name
    folder.mkdir()
    os.chown(folder, UID, UID)
    return folder


def _training(boxes: Boxes, tmp_path: Path, data: Path, runs: Path, *words: str) -> Box:
    inventory = tmp_path / "inventory.yaml"
    inventory.write_text(INVENTORY)
    command = f"""\
        deploy.jobs.pod_job train --inventory /etc/pscluster/inventory.yaml
        --set nodes.coordinator.address={ADDRESSES["job"]} --identity uid-1
    """
    volumes = (
        f"{data}:{STATE}/data",
        f"{runs}:{STATE}/runs",
        f"{inventory}:/etc/pscluster/inventory.yaml:ro",
    )
    return boxes.start("job", (*command.split(), *words), volumes)


def _ready(boxes: Boxes, *roles: str) -> None:
    for role in roles:
        eventually(partial(boxes.ready, role), f"{role} is ready", 120)


def _status(process: Path) -> dict[str, str]:
    """The rights of a process, by their names in /proc."""
    lines = (process / "status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines)


def test_a_training_in_containers(boxes: Boxes, tmp_path: Path) -> None:
    data = _folder(tmp_path, "data")
    runs = _folder(tmp_path, "runs")
    boxes.role("ps")
    boxes.role("worker", f"{data}:{STATE}/data:ro")
    training = _training(
        boxes, tmp_path, data, runs
    )  # before the roles are ready: it waits for them
    _ready(boxes, "ps", "worker")
    for kind in ("ps", "worker"):
        (process,) = boxes.processes(kind)
        status = _status(process)
        assert set(status["Uid"].split()) == {str(UID)}
        assert (status["CapEff"], status["CapBnd"]) == ("0" * 16, "0" * 16)
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
        assert re.search(r"^\S+ / \S+ (\S+,)?ro,", (process / "mounts").read_text(), re.MULTILINE)
    assert {MEGABYTES[kind] << 20 for kind in ("ps", "worker")} <= boxes.memory_limits()
    assert training.wait(600) == 0, training.log.read_text()
    (result,) = runs.glob("*-train/result.json")
    found = json.loads(result.read_text())
    assert (found["status"], found["workers"], found["ps"]) == ("done", 1, 1)
    assert result.stat().st_uid == UID
    assert (
        f"run {result.parent.name} begins" in boxes.first("worker").log.read_text()
    )  # the token allowed the request


ASK = (
    "import ssl, sys, urllib.request as web; trust ="
    " ssl.create_default_context(cafile=sys.argv[2]); "
    # the certificate has this machine's addresses, not the containers'
    "trust.check_hostname = False; "
    "asked = web.Request(sys.argv[1], sys.argv[4].encode() or None, {'Authorization': 'Bearer ' +"
    " sys.argv[3]}); "
    "print(web.urlopen(asked, timeout=20, context=trust).read().decode())"
)
SECRET = "the-house-s-own-secret"


def test_a_service_in_a_container_answers_with_what_was_promoted(
    boxes: Boxes, tmp_path: Path
) -> None:
    """It has the words of its Deployment: versions on a volume, and files of Secrets."""
    versions = _folder(tmp_path, "versions")
    secrets = _folder(tmp_path, "secrets")
    where = ADDRESSES["service"]
    server_certificate(secrets, [where])
    (secrets / "token").write_text(SECRET)
    for file in secrets.iterdir():
        os.chown(file, UID, UID)
    words = _words_of_the_service(where)
    volumes = (f"{versions}:{VERSIONS_FOLDER}", f"{secrets}:/secrets:ro")
    running = boxes.start("service", words, volumes)

    def promoted() -> None:
        made = tmp_path / "made"
        export(made)
        for path in (made, *made.iterdir()):
            os.chown(path, UID, UID)
        manage = f"recognise.service.manage promote --versions {VERSIONS_FOLDER} --model /export"
        volumes = (f"{versions}:{VERSIONS_FOLDER}", f"{made}:/export:ro")
        done = boxes.start("promotion", manage.split(), volumes)
        assert done.wait(120) == 0, done.log.read_text()

    def answer(path: str, body: str = "") -> str:
        url = f"https://{where}:8470{path}"
        return boxes.inside(
            sys.executable, "-c", ASK, url, str(secrets / "authority.crt"), SECRET, body
        )

    def served() -> bool:
        try:
            found = json.loads(answer("/v2/models/har/infer", json.dumps(as_json(windows(1)))))
        except subprocess.CalledProcessError:
            return False
        return str(found["model_version"]) == "1"

    eventually(
        lambda: "waiting for the first one" in running.log.read_text(), "the service waits", 120
    )
    promoted()
    eventually(served, "the first version is served", 120)
    assert "pscluster_service_model_version" in boxes.inside(
        "curl", "-s", f"http://{where}:9204/metrics"
    )
    (process,) = boxes.processes("service")
    status = _status(process)
    assert set(status["Uid"].split()) == {str(UID)}
    assert (status["CapEff"], status["NoNewPrivs"]) == ("0" * 16, "1")
    assert "tensorflow" not in (process / "maps").read_text()
    assert SECRET not in (process / "cmdline").read_text() + (process / "environ").read_text()
    running.process.send_signal(signal.SIGTERM)
    assert running.wait(60) == 0


def _words_of_the_service(address: str) -> list[str]:
    """The words of its pod, with this address and the files of `/secrets`."""
    inventory = loads(SERVING, "serving.yaml", [], path=Path("serving.yaml"), machine=machine())
    here = {
        "$(POD_IP)": address,
        f"{TLS_FOLDER}/tls.crt": "/secrets/server.pem",
        f"{TLS_FOLDER}/tls.key": "/secrets/server.pem",
        f"{TOKEN_FOLDER}/token": "/secrets/token",
    }
    return [here.get(word, word) for word in words_of_pod(inventory, pods_of(inventory))]


def test_the_next_pod_of_a_job_resumes_its_run(boxes: Boxes, tmp_path: Path) -> None:
    data = _folder(tmp_path, "data")
    runs = _folder(tmp_path, "runs")
    worker = (f"{data}:{STATE}/data:ro",)
    settings = ("--set", "jobs.train.epochs=500", "--set", "jobs.train.checkpoint.every_seconds=1")
    boxes.role("ps")
    boxes.role("worker", *worker)
    first = _training(boxes, tmp_path, data, runs, *settings)
    eventually(
        lambda: any(runs.glob("*-train/checkpoints/update-*.json")), "the first checkpoint", 300
    )
    boxes.kill("deploy.jobs.pod_job")
    assert first.wait(60) == 128 + signal.SIGKILL
    second = _training(boxes, tmp_path, data, runs, *settings)
    for role, volumes in (("ps", ()), ("worker", worker)):
        assert boxes.first(role).wait(120) == ExitCode.RESTART_ASKED
        boxes.role(role, *volumes)  # as the kubelet does
    (log,) = runs.glob("*-train/coordinator.log")
    eventually(lambda: "continues from update" in log.read_text(), "the second pod resumes", 300)
    assert second.process.poll() is None
    assert len(list(runs.glob("*-train"))) == 1
