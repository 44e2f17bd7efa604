"""The loss against a teacher, by NumPy; which teacher answers, and for which windows."""

import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray

from cluster.inventory.distillation import DistillSettings
from cluster.models.distillation import Distillation, Teacher, loss_of_guessing
from cluster.models.network import build
from cluster.models.objective import Classification
from cluster.models.thesis import ThesisModel

PLAIN = Classification(4)
WINDOWS = np.random.default_rng(0).normal(size=(5, 8, 3)).astype(np.float32)


def settings(weight: float = 0.5, temperature: float = 2.0) -> DistillSettings:
    return DistillSettings(run="teacher", weight=weight, temperature=temperature)


def teacher(seed: int, mean: float, deviation: float) -> Teacher:
    network = build(ThesisModel(hidden=8, n_stacked_layers=1), window_steps=8, channels=3, classes=4)
    return Teacher(network, network.initial(seed), np.array([[mean] * 3, [deviation] * 3], np.float32))


def softmax(logits: NDArray[np.float32], heat: float) -> NDArray[np.float64]:
    shares = np.exp(logits.astype(np.float64) / heat)
    return np.asarray(shares / shares.sum(1, keepdims=True))


def drawn(seed: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(0, 3, (6, 4)).astype(np.float32)


@pytest.mark.parametrize(("weight", "heat"), [(0.0, 2.0), (0.3, 1.0), (1.0, 4.0)])
def test_the_loss_is_that_of_hinton(weight: float, heat: float) -> None:
    answers, taught, labelled = drawn(1), drawn(2), np.arange(6, dtype=np.float32)
    found = Distillation(settings(weight, heat), ()).losses(labelled, PLAIN, tf.constant(answers), tf.constant(taught))
    wanted, own = softmax(taught, heat), softmax(answers, heat)
    divergence = (wanted * np.log(wanted / own)).sum(1)
    np.testing.assert_allclose(found.numpy(), (1 - weight) * labelled + weight * heat**2 * divergence, rtol=1e-4)


def test_a_student_that_ends_in_a_softmax_is_compared_with_its_shares() -> None:
    answers, taught, labelled = drawn(1), drawn(2), np.zeros(6, np.float32)
    of = Distillation(settings(1.0, 3.0), ())
    plain = of.losses(labelled, PLAIN, tf.constant(answers), tf.constant(taught))
    shares = tf.nn.softmax(tf.constant(answers))
    found = of.losses(labelled, Classification(4, probabilities=True), shares, tf.constant(taught))
    np.testing.assert_allclose(found.numpy(), plain.numpy(), rtol=1e-3, atol=1e-5)


def test_who_agrees_with_the_teacher_has_no_loss_and_its_gradient_has_one_size_at_any_temperature() -> None:
    taught, labelled = tf.constant(drawn(2)), np.zeros(6, np.float32)
    agreed = Distillation(settings(1.0, 5.0), ()).losses(labelled, PLAIN, taught + 1.5, taught)
    np.testing.assert_allclose(agreed.numpy(), 0, atol=1e-4)
    sizes = []
    for heat in (20.0, 80.0):
        answers = tf.constant(drawn(1))
        with tf.GradientTape() as tape:
            tape.watch(answers)
            loss = tf.reduce_sum(Distillation(settings(1.0, heat), ()).losses(labelled, PLAIN, answers, taught))
        sizes.append(float(tf.norm(tape.gradient(loss, answers))))
    assert sizes[0] == pytest.approx(sizes[1], rel=0.1)


def test_each_teacher_answers_in_its_own_standardization() -> None:
    teachers = (teacher(1, 0.5, 2.0), teacher(2, -1.0, 0.5))
    student = np.array([[3.0] * 3, [4.0] * 3], np.float32)
    traced = tf.function(Distillation(settings(), teachers), autograph=False)
    for place, one in enumerate(teachers):
        raw = WINDOWS * student[1] + student[0]
        own = (raw - one.standardization[0]) / one.standardization[1]
        named = one.network.unpack(tf.constant(one.vector))
        expected = one.network.apply(named, tf.constant(own), training=False, seed=tf.zeros([2], tf.int32)).logits
        found = traced(tf.constant(WINDOWS), tf.constant(student), tf.constant(place))
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-3, atol=1e-4)


def test_the_loss_of_guessing_leaves_room_for_the_temperature() -> None:
    guessing = np.log(4)
    assert loss_of_guessing(PLAIN, None) == pytest.approx(guessing)
    assert loss_of_guessing(PLAIN, settings(0.25, 3.0)) == pytest.approx((0.75 + 0.25 * 9) * guessing)
    own = Classification(4, loss=lambda targets, answers: answers)
    assert loss_of_guessing(own, settings()) is None
