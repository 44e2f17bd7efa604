"""The thesis's 256-unit networks ended at one constant class.

These learn to tell classes apart in a few steps.
"""

import numpy as np

from core.lazy import tf
from core.models.thesis import ThesisModel
from tests.core.models.yardstick import SEED, Vector, small

CLASSES = 6
STEPS = 24
CHANNELS = 9
TARGETS = np.repeat(np.arange(CLASSES, dtype=np.int32), 4)


def separable() -> Vector:
    """Windows whose classes differ in rhythm and level, with noise."""
    draw = np.random.Generator(np.random.Philox(5))
    time = np.arange(STEPS)[:, None]
    pace = (0.2 + 0.25 * TARGETS)[:, None, None]
    rhythm = np.sin(time * pace + draw.uniform(0, 6, (TARGETS.size, 1, 1)))
    level = draw.standard_normal((CLASSES, CHANNELS))[TARGETS][:, None, :]
    noise = draw.standard_normal((TARGETS.size, STEPS, CHANNELS))
    return (rhythm + level + 0.2 * noise).astype(np.float32)


def test_the_network_does_not_collapse_to_one_class() -> None:
    """Adam for 25 steps on one batch, the norm of the gradient cut at 15."""
    network = small(ThesisModel(hidden=256), STEPS, CHANNELS, CLASSES)
    batch = separable()
    flat = tf.Variable(network.initial(0))
    adam = tf.keras.optimizers.Adam(1e-3, epsilon=1e-8, clipnorm=15.0)
    adam.build([flat])

    @tf.function
    def step() -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            named = network.unpack(flat)
            logits = network.apply(named, batch, training=True, seed=SEED).logits
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(TARGETS, logits))
        adam.apply_gradients([(tape.gradient(loss, flat), flat)])
        return loss, tf.argmax(logits, 1)

    for _ in range(25):
        loss, predicted = step()
    assert loss < 0.5 * np.log(CLASSES)
    assert len(np.unique(predicted)) == CLASSES
