"""A class at each position, layers in bfloat16, a frozen one, weights: `single`, `sync` and `allreduce` agree."""

from pathlib import Path

import numpy as np

import cluster.engine.runtime  # noqa: F401  (its options decide how graphs are optimized)
from cluster.apps.app import load
from cluster.apps.networks import Kind, network_of
from cluster.data.examples import batches_of, write_examples
from cluster.inventory import TrainJob
from tests.jobs.steps_here import UPDATES, trained

APP = Path(__file__).parents[1] / "apps" / "tagger.py"


def job_of(mode: str, weights: object = "balanced") -> TrainJob:
    return TrainJob.model_validate(
        {"mode": mode, "batch_size": 20, "micro_batches": 2, "label_smoothing": 0.1, "class_weights": weights}
    )


def test_the_modes_agree(tmp_path: Path) -> None:
    app = load(APP)
    batches, labels = batches_of(app.call("data", tmp_path))
    data = write_examples(batches, tmp_path, name="tags", source="tags", labels=labels)
    network = network_of(app, Kind.of(data), 0)
    expected, losses = trained(network, job_of("single"), data)
    assert len(losses) == UPDATES
    assert not np.array_equal(expected, network.initial(0))
    for mode, parts in (("sync", 2), ("allreduce", 1)):
        found, same_losses = trained(network, job_of(mode), data, parts)
        np.testing.assert_array_equal(found.view(np.int32), expected.view(np.int32), err_msg=f"{mode} in {parts}")
        assert same_losses == losses
    alike, _ = trained(network, job_of("single", None), data)
    assert not np.array_equal(alike, expected), "or the weights of the classes did nothing"
