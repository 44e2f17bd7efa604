"""`single`, `sync` and `allreduce` end with the same bits, whatever constants a network multiplies with."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cluster.data.dataset import Array
from cluster.inventory import TrainJob
from cluster.models.layers import Dense, Dropout
from cluster.models.network import BuiltIn, Output, Problem, Tensors
from cluster.models.thesis import ThesisModel
from tests.jobs.steps_here import PROBLEM, ROWS, UPDATES, recordings, trained

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


@pytest.mark.parametrize("optimizer", ["lion", "rmsprop", "adagrad"])
def test_the_modes_agree_with_any_optimizer(tmp_path: Path, optimizer: str) -> None:
    data, network, chosen = recordings(tmp_path), Scaled(PROBLEM), {"name": optimizer}
    expected, _ = trained(network, job_of("single", optimizer=chosen), data)
    for mode, parts in (("sync", 2), ("allreduce", 1)):
        found, _ = trained(network, job_of(mode, optimizer=chosen), data, parts)
        np.testing.assert_array_equal(found.view(np.int32), expected.view(np.int32), err_msg=f"{mode} in {parts}")
