"""The loss against a teacher, by NumPy; which teacher answers, and for which windows."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from core.inventory.distillation import DistillSettings
from core.models.distillation import Distillation, Teacher, loss_of_guessing
from core.models.tasks import Classification
from core.models.thesis import ThesisModel
from tests.core.models.yardstick import close, drawn, logits, small

PLAIN = Classification(4)
ANSWERS, TAUGHT = 3 * drawn(1, 6, 4), 3 * drawn(2, 6, 4)
ZEROS = np.zeros(6, np.float32)


def settings(weight: float = 0.5, temperature: float = 2.0) -> DistillSettings:
    return DistillSettings(run="teacher", weight=weight, temperature=temperature)


def losses(
    answers: Any, weight: float, heat: float, labelled: Any = ZEROS, task: Any = PLAIN
) -> tf.Tensor:
    distillation = Distillation(settings(weight, heat), ())
    return distillation.losses(labelled, task, tf.constant(answers), tf.constant(TAUGHT))


def softmax(values: Any, heat: float) -> Any:
    shares = np.exp(values.astype(np.float64) / heat)
    return shares / shares.sum(1, keepdims=True)


@pytest.mark.parametrize(("weight", "heat"), [(0.0, 2.0), (0.3, 1.0), (1.0, 4.0)])
def test_the_loss_is_that_of_hinton(weight: float, heat: float) -> None:
    labelled = np.arange(6, dtype=np.float32)
    wanted = softmax(TAUGHT, heat)
    divergence = (wanted * np.log(wanted / softmax(ANSWERS, heat))).sum(1)
    expected = (1 - weight) * labelled + weight * heat**2 * divergence
    np.testing.assert_allclose(losses(ANSWERS, weight, heat, labelled), expected, rtol=1e-4)


def test_a_student_that_ends_in_a_softmax_is_compared_with_its_shares() -> None:
    task = Classification(4, probabilities=True)
    found = losses(tf.nn.softmax(ANSWERS), 1.0, 3.0, task=task)
    np.testing.assert_allclose(found, losses(ANSWERS, 1.0, 3.0), rtol=1e-3, atol=1e-5)


def test_agreement_has_no_loss_and_the_gradient_has_one_size_at_any_temperature() -> None:
    close(losses(TAUGHT + 1.5, 1.0, 5.0), ZEROS, 1e-4)
    sizes = []
    for heat in (20.0, 80.0):
        answers = tf.Variable(ANSWERS)
        with tf.GradientTape() as tape:
            loss = Distillation(settings(1.0, heat), ()).losses(
                ZEROS, PLAIN, answers, tf.constant(TAUGHT)
            )
        sizes.append(float(tf.norm(tape.gradient(loss, answers))))
    assert sizes[0] == pytest.approx(sizes[1], rel=0.1)


def teacher(seed: int, mean: float, deviation: float) -> Teacher:
    network = small(ThesisModel(hidden=8, n_stacked_layers=1), 8, 3, 4)
    standardization = np.array([[mean] * 3, [deviation] * 3], np.float32)
    return Teacher(network, network.initial(seed), standardization)


def test_each_teacher_answers_in_its_own_standardization() -> None:
    teachers = (teacher(1, 0.5, 2.0), teacher(2, -1.0, 0.5))
    student = np.array([[3.0] * 3, [4.0] * 3], np.float32)
    windows = drawn(0, 5, 8, 3)
    traced = tf.function(Distillation(settings(), teachers), autograph=False)
    for place, one in enumerate(teachers):
        raw = windows * student[1] + student[0]
        own = (raw - one.standardization[0]) / one.standardization[1]
        found = traced(*map(tf.constant, (windows, student, place)))
        close(found, logits(one.network, own, one.vector), 1e-4)


def test_the_loss_of_guessing_leaves_room_for_the_temperature() -> None:
    guessing = pytest.approx(np.log(4))
    assert loss_of_guessing(PLAIN, None) == guessing
    heated = loss_of_guessing(PLAIN, settings(0.25, 3.0))
    assert heated is not None
    assert heated / (0.75 + 0.25 * 9) == guessing
    own = Classification(4, loss=lambda targets, answers: answers)
    assert loss_of_guessing(own, settings()) is None
