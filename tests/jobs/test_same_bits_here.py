"""`single`, `sync` and `allreduce` end with the same bits, whatever constants a network multiplies with."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cluster.data import Dataset
from cluster.data.dataset import Array
from cluster.inventory import TrainJob
from cluster.inventory.extensions import MODELS
from cluster.models.distillation import Teacher
from cluster.models.layers import Dense, Dropout
from cluster.models.network import BuiltIn, Output, Problem, Tensors, build
from cluster.models.thesis import ThesisModel
from tests.jobs.steps_here import PROBLEM, ROWS, UPDATES, recordings, trained
from worker_node.recordings import Standardization

import tensorflow as tf  # isort: skip


class Scaled(BuiltIn):
    """Its gradient and its statistics run through several factors that are known when it is traced.

    TensorFlow's graph optimizer multiplies such factors with each other, and with the share of a micro-batch in its
    batch where that is known too.
    """

    @classmethod
    def widest_layer(cls, options: ThesisModel) -> int:
        return options.hidden

    def __init__(self, problem: Problem) -> None:
        self._hidden, self._head = Dense("hidden", problem.channels, 32), Dense("head", 32, problem.classes)
        self._dropout = Dropout(problem.keep_probability, site=0)
        super().__init__(ThesisModel(), problem, [self._hidden, self._head])

    def apply(self, parameters: Tensors, windows: tf.Tensor, *, training: bool, seed: tf.Tensor) -> Output:
        hidden = self._dropout(tf.nn.relu(self._hidden(parameters, windows)), training=training, seed=seed)
        return Output(0.3 * self._head(parameters, 1.7 * tf.reduce_mean(hidden, 1) / 0.9))


def job_of(mode: str, **others: object) -> TrainJob:
    common = {"mode": mode, "batch_size": 20, "micro_batches": 2, "label_smoothing": 0.1}
    return TrainJob.model_validate({**common, **others})


def test_the_modes_agree(tmp_path: Path) -> None:
    data, network = recordings(tmp_path), Scaled(PROBLEM)
    expected, losses = trained(network, job_of("single"), data)
    assert len(losses) == UPDATES
    assert not np.array_equal(expected, network.initial(0))
    for mode, parts in (("sync", 2), ("allreduce", 1)):
        found, same_losses = trained(network, job_of(mode), data, parts)
        np.testing.assert_array_equal(found.view(np.int32), expected.view(np.int32), err_msg=f"{mode} in {parts}")
        assert same_losses == losses


def test_the_modes_agree_on_weighted_losses(tmp_path: Path) -> None:
    plain, network, table = recordings(tmp_path), Scaled(PROBLEM), {"a": 0.3, "d": 3.7}
    own = np.linspace(0.1, 2.0, ROWS).astype("<f4")
    own.tofile(tmp_path / "weights.f32")
    data = replace(plain, weights=Array("weights.f32", "float32", ()))
    expected, losses = trained(network, job_of("single", class_weights=table), data)
    for mode, parts in (("sync", 2), ("allreduce", 1)):
        found, same_losses = trained(network, job_of(mode, class_weights=table), data, parts)
        np.testing.assert_array_equal(found.view(np.int32), expected.view(np.int32), err_msg=f"{mode} in {parts}")
        assert same_losses == losses
    unweighted, unweighted_losses = trained(network, job_of("single"), plain)
    assert not np.array_equal(unweighted, expected)
    # The first update's loss is of the same parameters, so the weights alone differ: about log 4 an example.
    rows = np.random.default_rng(0).permutation(ROWS)[:20]
    mean = float((own * np.array([0.3, 1.0, 1.0, 3.7])[np.arange(ROWS) % 4])[rows].mean())
    assert losses[0] / unweighted_losses[0] == pytest.approx(mean, rel=0.2)
    assert mean > 1.3, "or that says nothing"


@pytest.mark.parametrize(
    ("name", "pieces"),
    [
        ("spectral", 3),
        *(pytest.param(name, pieces, marks=pytest.mark.long) for name, pieces in (("spectral", 4), ("hybrid", 3))),
    ],
)
def test_statistics_of_windows_have_the_same_bits(tmp_path: Path, name: str, pieces: int) -> None:
    data, options = recordings(tmp_path), {"filters": 8, "hidden": 8, "layers": 1} if name == "hybrid" else {}
    config = MODELS[name].Options.model_validate({"name": name, **options})
    network = build(config, window_steps=PROBLEM.window_steps, channels=PROBLEM.channels, classes=PROBLEM.classes)
    others = {"micro_batches": pieces, "model": {"name": name, **options}}
    expected, losses = trained(network, job_of("single", **others), data)
    for mode, parts in (("sync", 1), ("sync", pieces), ("sync", 2), ("allreduce", 1)):
        if pieces % parts:
            continue
        found, same_losses = trained(network, job_of(mode, **others), data, parts)
        np.testing.assert_array_equal(found.view(np.int32), expected.view(np.int32), err_msg=f"{mode} in {parts}")
        assert same_losses == losses
    # What is measured once keeps its bits, also where the shares of the micro-batches are no binary fractions.
    standardization = Standardization.of(data, np.arange(ROWS))
    blocks = standardization.blocks(data, np.arange(ROWS))
    begun = network.layout.unpack(network.measured(network.initial(0), standardization.packed(), blocks))
    ended = network.layout.unpack(expected)
    assert not np.array_equal(begun["head/kernel"], ended["head/kernel"])
    for name in ("scale", "shift", "mean", "deviation"):
        np.testing.assert_array_equal(ended[f"statistics/{name}"], begun[f"statistics/{name}"])


@pytest.mark.long
def test_augmented_windows_have_the_same_bits(tmp_path: Path) -> None:
    data, network = recordings(tmp_path), Scaled(PROBLEM)
    others = {"augment": {"rotation_degrees": 30.0, "time_warp": 0.3}, "micro_batches": 4}
    expected, losses = trained(network, job_of("single", **others), data)
    for mode, parts in (("sync", 4), ("sync", 2), ("allreduce", 1)):
        found, same_losses = trained(network, job_of(mode, **others), data, parts)
        np.testing.assert_array_equal(found.view(np.int32), expected.view(np.int32), err_msg=f"{mode} in {parts}")
        assert same_losses == losses
    plain, _ = trained(network, job_of("single", micro_batches=4), data)
    assert not np.array_equal(plain, expected)


def teachers_of(data: Dataset) -> tuple[Teacher, ...]:
    """Two of a kind, standardized by other windows than their student, as a model of fewer people is."""
    config = MODELS["spectral"].Options.model_validate({"name": "spectral", "hidden": 8})
    network = build(config, window_steps=PROBLEM.window_steps, channels=PROBLEM.channels, classes=PROBLEM.classes)
    found = []
    for seed, rows in ((5, np.arange(30)), (6, np.arange(30, ROWS))):
        own = Standardization.of(data, rows)
        vector = network.measured(network.initial(seed), own.packed(), own.blocks(data, rows))
        found.append(Teacher(network, vector, own.packed()))
    return tuple(found)


@pytest.mark.long
def test_a_taught_network_has_the_same_bits(tmp_path: Path) -> None:
    data, network = recordings(tmp_path), Scaled(PROBLEM)
    teachers = teachers_of(data)
    others = {
        "micro_batches": 4,
        "augment": {"rotation_degrees": 30.0, "time_warp": 0.3},
        "distill": {"run": "teacher", "weight": 0.7, "temperature": 3.0},
    }
    expected, losses = trained(network, job_of("single", **others), data, teachers=teachers, teacher=1)
    for mode, parts in (("sync", 4), ("allreduce", 1)):
        found, same_losses = trained(network, job_of(mode, **others), data, parts, teachers=teachers, teacher=1)
        np.testing.assert_array_equal(found.view(np.int32), expected.view(np.int32), err_msg=f"{mode} in {parts}")
        assert same_losses == losses
    alone, _ = trained(network, job_of("single", **others), data, teachers=teachers[1:])
    np.testing.assert_array_equal(alone.view(np.int32), expected.view(np.int32), err_msg="its place means nothing")
    other, _ = trained(network, job_of("single", **others), data, teachers=teachers)
    assert not np.array_equal(other, expected)


def test_a_push_learns_from_the_teacher_too(tmp_path: Path) -> None:
    data, network = recordings(tmp_path), Scaled(PROBLEM)
    taught = job_of("async", distill={"run": "teacher", "weight": 1.0})
    first, second = (trained(network, taught, data, teachers=teachers_of(data), teacher=place)[0] for place in (0, 1))
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("optimizer", ["lion", "rmsprop", "adagrad"])
def test_the_modes_agree_with_any_optimizer(tmp_path: Path, optimizer: str) -> None:
    data, network, chosen = recordings(tmp_path), Scaled(PROBLEM), {"name": optimizer}
    expected, _ = trained(network, job_of("single", optimizer=chosen), data)
    for mode, parts in (("sync", 2), ("allreduce", 1)):
        found, _ = trained(network, job_of(mode, optimizer=chosen), data, parts)
        np.testing.assert_array_equal(found.view(np.int32), expected.view(np.int32), err_msg=f"{mode} in {parts}")
