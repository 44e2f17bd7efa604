"""Distillation: a network learns what a trained one, its teacher, answers for its windows.

Hinton et al. 2015, "Distilling the Knowledge in a Neural Network" (arXiv 1503.02531). The teacher
sees each window as its student does, augmented alike (consistent teaching, Beyer et al. 2022, arXiv
2106.05237). It is a constant of the graph: it reaches a worker with the function that it is a part
of, over whatever the function travels.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from core.inventory.distillation import DistillSettings
from core.lazy import np, tf
from core.models.network import BuiltIn
from core.models.objective import SMALLEST_PROBABILITY, Objective
from core.parameters import Vector


@dataclass(frozen=True, eq=False)
class Teacher:
    """A trained network, its flat vector, and the float32 (2, channels) of its standardization."""

    network: BuiltIn
    vector: Vector
    standardization: Any


@dataclass(frozen=True, eq=False)
class Distillation:
    """One or several teachers of one architecture; `place`, int32, says which, such as a fold's."""

    settings: DistillSettings
    teachers: Sequence[Teacher]

    def __call__(self, windows: Any, standardization: Any, place: Any) -> Any:
        """Return the logits (batch, classes) of teacher number `place` for a student's windows.

        The windows are (batch, steps, channels); `standardization`, float32 (2, channels), is what
        they were standardized with.
        """
        own = tf.gather(
            tf.constant(np.stack([teacher.standardization for teacher in self.teachers])), place
        )
        vector = tf.gather(
            tf.constant(np.stack([teacher.vector for teacher in self.teachers])), place
        )
        network = self.teachers[0].network
        windows = (windows * standardization[1] + standardization[0] - own[0]) / own[1]
        # no dropout outside training
        named = network.unpack(vector)
        seed = tf.zeros([2], tf.int32)
        return tf.stop_gradient(network.apply(named, windows, training=False, seed=seed).logits)

    def losses(self, labelled: Any, objective: Objective, answers: Any, taught: Any) -> Any:
        """Return the loss of each example, float32 (n,).

        It is (1 - weight) * `labelled` + weight * T^2 * KL(teacher || student).

        `labelled`, (n,), is the loss by the labels, `answers` are the student's, `taught` the
        teacher's logits, both (n, classes). Their softmaxes are of temperature T; T^2 keeps the
        gradient's size (Hinton et al., section 2).
        """
        if objective.probabilities:
            shares = tf.math.divide_no_nan(answers, tf.reduce_sum(answers, -1, keepdims=True))
            answers = tf.math.log(tf.clip_by_value(shares, SMALLEST_PROBABILITY, 1.0))
        heat = self.settings.temperature
        wanted = tf.nn.log_softmax(taught / heat)
        found = tf.nn.log_softmax(answers / heat)
        divergence = tf.reduce_sum(tf.exp(wanted) * (wanted - found), -1)
        weight = self.settings.weight
        return (1.0 - weight) * labelled + (weight * heat * heat) * divergence


def loss_of_guessing(objective: Objective, settings: DistillSettings | None) -> float | None:
    """Return at least the loss of a network that knows nothing, or None where that is unknown.

    A teacher's divergence from equal shares is at most log(n).
    """
    labelled = objective.loss_of_guessing
    if labelled is None or settings is None:
        return labelled
    taught = settings.temperature**2 * float(np.log(max(2, objective.outputs)))
    return (1.0 - settings.weight) * labelled + settings.weight * taught
