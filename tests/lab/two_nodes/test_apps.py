"""An app with a package travels to two nodes over SSH, is trained, resumed and evaluated there."""

from pathlib import Path

import pytest

from cluster.apps.files import files_of_app
from tests.lab.two_nodes.place import HUB, NODES, Place

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]

APP = """\
import humanize
import keras
import numpy as np

from parts.blocks import WIDTH


def model(input_shape, outputs):
    inputs = keras.Input(input_shape)
    hidden = keras.layers.Dense(WIDTH, activation="relu")(inputs)
    return keras.Model(inputs, keras.layers.Dense(outputs)(hidden))


def data(folder):
    random = np.random.default_rng(0)
    x = random.normal(size=(1200, 6)).astype(np.float32)
    y = (x[:, 0] > x[:, 1]).astype(np.int32)
    print("made", humanize.intcomma(len(x)), "rows")
    return {"x_train": x[:1000], "y_train": y[:1000], "x_test": x[1000:], "y_test": y[1000:]}
"""
SHORT = ("--set", "jobs.train.epochs=2", "--set", "jobs.train.checkpoint.every_seconds=0")


def written(folder: Path) -> Path:
    """The app in this folder."""
    (folder / "parts").mkdir(parents=True)
    (folder / "app.py").write_text(APP)
    (folder / "parts" / "blocks.py").write_text("WIDTH = 8\n")
    (folder / "requirements.txt").write_text("humanize\n")
    return folder


@pytest.fixture(scope="module")
def app(place: Place) -> Path:
    return written(place.operator.folder / "halves")


def test_an_app_is_trained_with_its_package_and_leaves_a_copy(place: Place, app: Path) -> None:
    done = place.operator.fab("job", "train", "--app", "halves", "--mode", "sync", *SHORT)
    assert "made 1,200 rows" in done.text
    result = place.operator.result()
    assert (result["status"], result["epochs_done"], result["workers"]) == ("done", 2, 2)
    kept = place.operator.read("*-train*/app.json")
    assert kept["digest"] == files_of_app(app).digest
    (copy,) = place.operator.folder.glob("runs/*-train/app")
    assert files_of_app(copy).digest == kept["digest"]
    environment = f"/opt/pscluster/extras/environments/{kept['environment']}"
    assert place.on(HUB, f"stat -c %U {environment}/.complete") == "root"
    assert place.on("rpi02", "ls -d /opt/pscluster/extras 2>/dev/null || echo none") == "none"
    left = place.on(
        HUB, "ls /var/lib/pscluster/jobs/$(tail -n 1 /var/lib/pscluster/jobs/.order)"
    ).split()
    assert not {"app", "app.tar.gz"} & {*left}


def test_its_data_is_read_by_every_node_and_written_by_one(place: Place, app: Path) -> None:
    sets = {node: place.on(node, "ls /mnt/pscluster/data") for node in NODES}
    assert sets[HUB]
    assert sets["rpi02"] == sets[HUB]
    assert place.on("rpi02", "touch /mnt/pscluster/data/x 2>/dev/null || echo refused") == "refused"


def test_it_is_evaluated_with_the_copy_of_its_run(place: Place, app: Path) -> None:
    (app / "parts" / "blocks.py").write_text("WIDTH = 99\n")
    place.operator.fab("job", "evaluate")
    assert place.operator.read("*-evaluate/result.json")["status"] == "done"


def test_an_interrupted_run_continues_with_its_copy_and_says_what_changed(
    place: Place, app: Path
) -> None:
    with place.operator.running(
        "job", "train", "--app", "halves", "--set", "jobs.train.epochs=2000", *SHORT[2:]
    ) as job:
        job.wait_for("train: epoch")
        place.operator.fab("job", "cancel")
        job.end(130)
    (app / "app.py").write_text(APP + "# another line\n")
    with place.operator.running(
        "job", "train", "--resume", "--app", "halves", "--set", "jobs.train.epochs=2000", *SHORT[2:]
    ) as job:
        job.wait_for("has changed since the run began")
        job.wait_for("train: epoch")
        place.operator.fab("job", "cancel")
        job.end(130)


def test_a_package_that_the_nodes_cannot_have_is_one_line_before_any_job(
    place: Place, app: Path
) -> None:
    before = place.on(HUB, "cat /var/lib/pscluster/jobs/.order")
    (app / "requirements.txt").write_text("numpy<2\n")
    refused = place.operator.fab("job", "train", "--app", "halves", code=2)
    assert "you require numpy<2" in refused.text
    assert "the cluster's own version, which stays" in refused.text
    assert place.on(HUB, "cat /var/lib/pscluster/jobs/.order") == before
