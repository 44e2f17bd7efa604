"""Every template and example passes the gate and the checks, and a step has a gradient."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import core.engine.runtime  # noqa: F401  (its options decide how graphs are optimized)
from cluster.apps.app import App, load
from cluster.apps.app_network import Kind
from cluster.apps.networks import network_of
from core.data import Dataset, open_prepared, prepare
from core.data.prepare import batches_of, write_examples
from core.data.source import Source
from core.ground.lazy import tf
from core.inventory.training import TrainJob
from deploy.apps import FOLDER, TEMPLATES
from tests.cluster.jobs.cluster import own_recordings
from worker_node.gradient import GradientOfBatch

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
APPS = {
    **{f"template {name}": FOLDER / name for name in TEMPLATES},
    **{f"example {path.parent.name}": path.parent for path in EXAMPLES.glob("*/app.py")},
}
BATCH = 8


def data_of(app: App, folder: Path) -> Dataset:
    if not app.has("data"):
        recordings = own_recordings(folder / "mine.npz", train=40, test=20)
        source = Source("npz", recordings, "made here")
        return prepare(
            source,
            window_steps=64,
            window_stride=64,
            cache=folder,
            seed=0,
            progress=lambda *_: None,
        )
    given = app.folder
    if app.folder.name == "characters":
        given = folder / "pages"
        given.mkdir()
        for name in "ab":
            (given / f"{name}.md").write_text(
                f"# Page {name}\n\nThe quick brown fox, and 7 lazy dogs.\n" * 40
            )
    batches, labels = batches_of(app.call("data", given), app.task or "classification")
    return write_examples(
        batches,
        folder,
        name="mine",
        source="data()",
        task=app.task or "classification",
        labels=labels,
    )


@pytest.mark.parametrize("name", APPS)
def test_a_step(name: str, tmp_path: Path) -> None:
    app = load(APPS[name])
    dataset = data_of(app, tmp_path)
    assert open_prepared(dataset.folder).sha256 == dataset.sha256
    network = network_of(app, Kind.of_dataset(dataset), 0)
    job = TrainJob(batch_size=BATCH, slots=1)
    size = network.layout.trained_size
    vector = network.initial(0)
    x: Any = np.asarray(dataset.windows()[:BATCH]).astype(network.kind.input_dtype)
    y: Any = np.asarray(dataset.target_values()[:BATCH])
    found = GradientOfBatch(network, job)(
        tf.constant(vector[:size]),
        tf.constant(vector[size:]),
        tf.constant(x),
        tf.constant(y),
        tf.constant([1, 2]),
    )
    assert np.isfinite(found.loss)
    assert 0 < found.norm < np.inf
    assert found.gradient.shape == (size,)
