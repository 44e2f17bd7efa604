"""`single`, `sync` and `allreduce` end with the same bits, whatever constants a network multiplies with."""

from pathlib import Path

import numpy as np

from cluster.inventory import TrainJob
from cluster.models.layers import Dense, Dropout
from cluster.models.network import BuiltIn, Output, Problem, Tensors
from cluster.models.thesis import ThesisModel
from tests.jobs.steps_here import PROBLEM, UPDATES, recordings, trained

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


def job_of(mode: str) -> TrainJob:
    return TrainJob.model_validate({"mode": mode, "batch_size": 20, "micro_batches": 2, "label_smoothing": 0.1})


def test_the_modes_agree(tmp_path: Path) -> None:
    data, network = recordings(tmp_path), Scaled(PROBLEM)
    expected, losses = trained(network, job_of("single"), data)
    assert len(losses) == UPDATES
    assert not np.array_equal(expected, network.initial(0))
    for mode, parts in (("sync", 2), ("allreduce", 1)):
        found, same_losses = trained(network, job_of(mode), data, parts)
        np.testing.assert_array_equal(found.view(np.int32), expected.view(np.int32), err_msg=f"{mode} in {parts}")
        assert same_losses == losses
