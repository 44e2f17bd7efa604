"""A small network, a batch for it, and the gradient of that."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.ground.lazy import tf
from core.inventory import TrainJob
from core.models.network import Network, build
from worker_node.gradient import BatchGradient, GradientOfBatch
from worker_node.recordings import LossWeights

STEPS = 8
CHANNELS = 3
CLASSES = 4
Floats = NDArray[np.float32]


def job(batch_norm: bool = False, **given: Any) -> TrainJob:
    """A training of a small network, plain but for what is given."""
    model = {"name": "thesis", "hidden": 8, "n_stacked_layers": 1, "batch_norm": batch_norm}
    plain = {"clip_norm": None, "label_smoothing": 0.0, "slots": 1, "batch_size": 10}
    return TrainJob.model_validate({**plain, "model": model, **given})


def network_of(training: TrainJob) -> Network:
    return build(training.model, window_steps=STEPS, channels=CHANNELS, classes=CLASSES)


def start(network: Network) -> tuple[Floats, Floats]:
    """Trained parameters and statistics."""
    trained, statistics = np.split(network.initial(1), [network.layout.trained_size])
    return trained, statistics


def windows(size: int) -> Floats:
    drawn = np.random.default_rng(2).normal(size=(size, STEPS, CHANNELS))
    return drawn.astype(np.float32)


def gradient_of(
    training: TrainJob,
    inputs: Floats | None = None,
    classes: NDArray[np.int32] | None = None,
    weights: LossWeights | None = None,
    own: Any = None,
) -> BatchGradient:
    """The gradient at the start, of this batch or of one that is drawn."""
    network = network_of(training)
    size = training.batch_size
    if inputs is None:
        inputs = windows(size)
    if classes is None:
        classes = np.arange(size, dtype=np.int32) % CLASSES
    trained, statistics = map(tf.constant, start(network))
    batch = (tf.constant(inputs), tf.constant(classes))
    computed = GradientOfBatch(network, training, weights)
    return computed(trained, statistics, *batch, tf.constant([0, 0]), own)
