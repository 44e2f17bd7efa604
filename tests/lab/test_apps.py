"""An app with a package of its own travels to two nodes over SSH, is trained there, resumed and evaluated."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cluster.apps.files import look
from tests.lab.environment import environment_seed
from tests.lab.lab import Lab
from tests.lab.operator import Operator

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]

NODES = ("rpi01", "rpi02")
HUB = "rpi01"
"""Shared folder, parameter server and coordinator."""
APP = """\
import humanize
import keras
import numpy as np

from parts.blocks import WIDTH


def model(input_shape, outputs):
    inputs = keras.Input(input_shape)
    return keras.Model(inputs, keras.layers.Dense(outputs)(keras.layers.Dense(WIDTH, activation="relu")(inputs)))


def data(folder):
    random = np.random.default_rng(0)
    x = random.normal(size=(1200, 6)).astype(np.float32)
    y = (x[:, 0] > x[:, 1]).astype(np.int32)
    print("made", humanize.intcomma(len(x)), "rows")
    return {"x_train": x[:1000], "y_train": y[:1000], "x_test": x[1000:], "y_test": y[1000:]}
"""
SHORT = ("--set", "jobs.train.epochs=2", "--set", "jobs.train.checkpoint.every_seconds=0")


@dataclass(frozen=True)
class Place:
    """A running cluster of two nodes, its operator, and an app in the operator's folder."""

    lab: Lab
    operator: Operator
    app: Path

    def on(self, node: str, script: str) -> str:
        """The output of a script of root's on a node."""
        return self.lab.node(node).execute("sh", "-c", script).stdout.strip()

    def record(self) -> dict[str, Any]:
        """`app.json` of the newest training that was fetched."""
        newest = max(self.operator.folder.glob("runs/*-train*/app.json"), key=lambda path: path.parent.name)
        found: dict[str, Any] = json.loads(newest.read_text())
        return found


@pytest.fixture(scope="module")
def place(lab_can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    layer = environment_seed()
    with Lab.up(len(NODES), seeds=dict.fromkeys(NODES, layer)) as lab:
        operator = Operator(lab, tmp_path_factory.mktemp("operator"))
        written = subprocess.run(
            [*operator.tool, "init", "--hosts", "192.168.1.16-17"], capture_output=True, text=True, check=True
        )
        operator.inventory.write_text(written.stdout.replace("node0", "rpi0"))
        app = operator.folder / "halves"
        (app / "parts").mkdir(parents=True)
        (app / "app.py").write_text(APP)
        (app / "parts" / "blocks.py").write_text("WIDTH = 8\n")
        (app / "requirements.txt").write_text("humanize\n")
        operator.fab("deploy", "trust", "--yes")
        operator.fab("deploy", "start", "--no-jobs")
        yield Place(lab, operator, app)


def test_an_app_is_trained_with_its_package_and_leaves_a_copy(place: Place) -> None:
    done = place.operator.fab("job", "train", "--app", "halves", "--mode", "sync", *SHORT)
    assert "made 1,200 rows" in done.text
    result = place.operator.result()
    assert (result["status"], result["epochs_done"], result["workers"]) == ("done", 2, 2)
    record = place.record()
    assert record["digest"] == look(place.app).digest
    (copy,) = place.operator.folder.glob("runs/*-train/app")
    assert look(copy).digest == record["digest"]
    environment = f"/opt/pscluster/extras/environments/{record['environment']}"
    assert place.on(HUB, f"stat -c %U {environment}/.complete") == "root"
    assert place.on("rpi02", "ls -d /opt/pscluster/extras 2>/dev/null || echo none") == "none"
    left = place.on(HUB, "ls /var/lib/pscluster/jobs/$(tail -n 1 /var/lib/pscluster/jobs/.order)").split()
    assert not {"app", "app.tar"} & {*left}


def test_its_data_is_read_by_every_node_and_written_by_one(place: Place) -> None:
    sets = {node: place.on(node, "ls /mnt/pscluster/data") for node in NODES}
    assert sets[HUB]
    assert sets["rpi02"] == sets[HUB]
    assert place.on("rpi02", "touch /mnt/pscluster/data/x 2>/dev/null || echo refused") == "refused"


def test_it_is_evaluated_with_the_copy_of_its_run(place: Place) -> None:
    (place.app / "parts" / "blocks.py").write_text("WIDTH = 99\n")
    place.operator.fab("job", "evaluate")
    (evaluated,) = place.operator.folder.glob("runs/*-evaluate/result.json")
    assert json.loads(evaluated.read_text())["status"] == "done"


def test_an_interrupted_run_continues_with_its_copy_and_says_what_changed(place: Place) -> None:
    with place.operator.running(
        "job", "train", "--app", "halves", "--set", "jobs.train.epochs=2000", *SHORT[2:]
    ) as job:  # fmt: skip
        job.wait_for("train: epoch")
        place.operator.fab("job", "cancel")
        job.end(130)
    (place.app / "app.py").write_text(APP + "# another line\n")
    with place.operator.running(
        "job", "train", "--resume", "--app", "halves", "--set", "jobs.train.epochs=2000", *SHORT[2:]
    ) as job:
        job.wait_for("has changed since the run began")
        job.wait_for("train: epoch")
        place.operator.fab("job", "cancel")
        job.end(130)


def test_a_package_that_the_nodes_cannot_have_is_one_line_before_any_job(place: Place) -> None:
    before = place.on(HUB, "cat /var/lib/pscluster/jobs/.order")
    (place.app / "requirements.txt").write_text("numpy<2\n")
    refused = place.operator.fab("job", "train", "--app", "halves", code=2)
    assert "you require numpy<2" in refused.text
    assert "the cluster's own version, which stays" in refused.text
    assert place.on(HUB, "cat /var/lib/pscluster/jobs/.order") == before
