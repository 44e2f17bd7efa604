"""The statistics of windows against NumPy's own computation; what the network keeps of its training windows."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray

from cluster.models.network import Network, build
from cluster.models.spectral import FARTHEST, SpectralModel
from cluster.models.window_statistics import BANDS, CHANGE, LAGS, SMALL, WEAK, WindowStatistics
from tests.models.yardstick import windows as standard_windows

SEED = tf.constant([0, 0], tf.int32)
WAYS_OUT = {"PyFunc", "EagerPyFunc", "PyFuncStateless", "TopKV2", "Sort", "RandomUniform", "RandomStandardNormal"}


def recorded(count: int, steps: int, channels: int) -> NDArray[np.float32]:
    random = np.random.default_rng(steps)
    time = np.arange(steps)[None, :, None] / 50
    waves = np.sin(2 * np.pi * random.uniform(0.5, 8, (count, 1, channels)) * time)
    return (waves + random.normal(0.5, 0.4, (count, steps, channels))).astype(np.float32)


def by_numpy(windows: NDArray[np.float32]) -> NDArray[np.float64]:
    """The statistics of windows of 128 steps by NumPy's FFT and statistics, in float64."""
    x = windows.astype(np.float64)
    found = []
    for signals in (x, CHANGE * np.diff(x, axis=1)):
        if x.shape[2] % 3 == 0:
            axes = signals.reshape(*signals.shape[:2], -1, 3)
            signals = np.concatenate([signals, np.linalg.norm(axes, axis=3)], 2)
        mean = signals.mean(1)
        centred = signals - mean[:, None]
        found += [mean, signals.std(1), np.abs(centred).mean(1), signals.max(1), signals.min(1), (signals**2).mean(1)]
        spectrum = np.log1p(np.abs(np.fft.rfft(centred, axis=1)) ** 2)
        found += [spectrum[:, begin:end].mean(1) for begin, end in itertools.pairwise(BANDS)]
        found.append(spectrum[:, 1:].max(1))
        for lag in LAGS:
            found.append((centred[:, lag:] * centred[:, :-lag]).mean(1) / (signals.var(1) + SMALL))
    if x.shape[2] % 3:
        pairs = [(x[:, :, k], x[:, :, k - 1]) for k in range(x.shape[2])]
    else:
        pairs = [(x[:, :, k], x[:, :, k - k % 3 + (k - 1) % 3]) for k in range(x.shape[2])]
    found.append(np.stack([[np.corrcoef(a, b)[0, 1] for a, b in zip(*pair, strict=True)] for pair in pairs], 1))
    if x.shape[2] % 3 == 0:
        mean = x.mean(1).reshape(len(x), -1, 3)
        found.append((mean / (np.linalg.norm(mean, axis=2, keepdims=True) + WEAK)).reshape(len(x), -1))
    return np.concatenate(found, 1)


@pytest.mark.parametrize(("channels", "count"), [(6, 428), (9, 642), (4, 212)])
def test_the_statistics_are_those_of_numpy(channels: int, count: int) -> None:
    windows = recorded(5, 128, channels)
    statistics = WindowStatistics(128, channels)
    found = statistics(tf.constant(windows)).numpy()
    assert found.shape == (5, statistics.count) == (5, count)
    np.testing.assert_allclose(found, by_numpy(windows), rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("steps", [8, 13, 127, 200, 300, 600])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_any_length_and_any_channels_have_as_many_as_they_say(steps: int, channels: int) -> None:
    statistics = WindowStatistics(steps, channels)
    found = statistics(tf.constant(recorded(2, steps, channels))).numpy()
    assert found.shape == (2, statistics.count)
    assert np.isfinite(found).all()


def test_a_window_that_stands_still_has_finite_statistics() -> None:
    assert np.isfinite(WindowStatistics(128, 6)(tf.ones([1, 128, 6])).numpy()).all()


def test_turning_the_sensor_leaves_the_lengths_alone() -> None:
    windows = recorded(3, 128, 3)
    turned, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))
    statistics = WindowStatistics(128, 3)
    before, after = (statistics(tf.constant(x.astype(np.float32))).numpy() for x in (windows, windows @ turned))
    np.testing.assert_allclose(before[:, 3], after[:, 3], rtol=1e-4)  # the mean length: behind the means of x, y, z
    assert np.abs(before[:, :3] - after[:, :3]).max() > 0.1


def measured(steps: int = 16, channels: int = 6) -> tuple[Network, NDArray[np.float32], NDArray[np.float32]]:
    network = build(SpectralModel(hidden=8), window_steps=steps, channels=channels, classes=3)
    raw = recorded(40, steps, channels) * np.array([1, 2, 4] * (channels // 3), np.float32) + 3
    standardization = np.stack([raw.mean((0, 1)), raw.std((0, 1))])
    standard = (raw - standardization[0]) / standardization[1]
    vector = network.measured(network.initial(0), standardization, [standard[:30], standard[30:]])
    return network, vector, standard


def test_statistics_are_standardized_over_the_training_windows_with_one_scale_a_sensor() -> None:
    network, vector, standard = measured()
    kept = network.layout.unpack(vector)
    raw = standard * kept["statistics/scale"] + kept["statistics/shift"]
    # Turning needs one unit for x, y and z: the deviations of the channels lie as they did, 1 : 2 : 4.
    np.testing.assert_allclose(raw.std((0, 1))[1] / raw.std((0, 1))[0], 2, rtol=0.2)
    found = WindowStatistics(16, 6)(tf.constant(raw)).numpy()
    np.testing.assert_allclose(kept["statistics/mean"], found.mean(0), rtol=1e-3, atol=1e-4)
    varied = found.std(0) > 1e-3
    np.testing.assert_allclose(kept["statistics/deviation"][varied], found.std(0)[varied], rtol=1e-2)


def test_the_blocks_that_are_measured_do_not_matter() -> None:
    network, vector, standard = measured()
    standardization = np.stack([np.full(6, 3.0), np.tile([1.0, 2.0, 4.0], 2)]).astype(np.float32)
    whole, pieces = (
        network.measured(network.initial(0), standardization, blocks)
        for blocks in ([standard], [standard[:7], standard[7:]])
    )
    np.testing.assert_allclose(whole, pieces, rtol=1e-5, atol=1e-6)
    assert not np.array_equal(whole, vector)
    trained = network.layout.trained_size
    np.testing.assert_array_equal(whole[:trained], network.initial(0)[:trained])


def test_a_statistic_far_off_is_cut_off() -> None:
    network, vector, standard = measured()
    named = network.unpack(tf.constant(vector))
    far = network.apply(named, tf.constant(standard * 1e6), training=False, seed=SEED).logits.numpy()
    kernel, head = named["hidden/kernel"].numpy(), named["head/kernel"].numpy()
    largest = FARTHEST * np.abs(kernel).sum(0) @ np.abs(head)
    assert (np.abs(far) <= largest + 1).all()


def tape_gradient_of_the_tail(network: Network, flat: tf.Tensor, standard: NDArray[np.float32]) -> bool:
    with tf.GradientTape() as tape:
        tape.watch(flat)
        found = tf.reduce_sum(
            network.apply(network.unpack(flat), tf.constant(standard[:10]), training=True, seed=SEED).logits
        )
    return bool(np.any(tape.gradient(found, flat).numpy()[network.layout.trained_size :]))


def test_the_gradient_is_that_of_small_differences_and_the_tail_is_handed_back() -> None:
    network, vector, standard = measured()
    labels = tf.constant(np.arange(10) % 3)

    def loss_of(flat: tf.Tensor) -> tf.Tensor:
        output = network.apply(network.unpack(flat), tf.constant(standard[:10]), training=True, seed=SEED)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, output.logits))

    flat = tf.constant(vector)
    with tf.GradientTape() as tape:
        tape.watch(flat)
        loss = loss_of(flat)
    gradient = tape.gradient(loss, flat).numpy()[: network.layout.trained_size]
    random = np.random.default_rng(0)
    for _ in range(4):
        direction = np.zeros(network.layout.size, np.float32)
        direction[: network.layout.trained_size] = random.normal(size=network.layout.trained_size)
        direction /= np.linalg.norm(direction)
        step = 2e-3
        slope = float(loss_of(flat + step * direction) - loss_of(flat - step * direction)) / (2 * step)
        assert slope == pytest.approx(float(gradient @ direction[: network.layout.trained_size]), rel=0.05, abs=1e-3)
    # Nothing is differentiated that is never trained: that cost six times the rest.
    assert not tape_gradient_of_the_tail(network, flat, standard)
    output = network.apply(network.unpack(flat), tf.constant(standard[:10]), training=True, seed=SEED)
    untrained = {slot.spec.name for slot in network.layout.slots if not slot.spec.trained}
    assert set(output.statistics) == untrained


def test_without_a_hidden_layer_it_is_linear_in_the_statistics() -> None:
    network = build(SpectralModel(hidden=0), window_steps=128, channels=9, classes=6)
    assert network.layout.trained_size == 6 * (642 + 1)


def test_the_graph_holds_plain_operations_alone() -> None:
    network = build(SpectralModel(), window_steps=128, channels=9, classes=6)

    def answer(flat: tf.Tensor, batch: tf.Tensor) -> tf.Tensor:
        return network.apply(network.unpack(flat), batch, training=False, seed=SEED).logits

    concrete = tf.function(answer).get_concrete_function(
        tf.TensorSpec([network.layout.size]), tf.TensorSpec([None, 128, 9])
    )
    assert not {node.type for node in concrete.graph.get_operations()} & WAYS_OUT
    given = standard_windows(4, network)
    assert concrete(tf.constant(network.initial(0)), given).shape == (4, 6)
