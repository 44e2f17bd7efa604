"""The statistics of windows against NumPy's own computation.

What the network keeps of its training windows.
"""

import hashlib
import itertools
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from core.ground.lazy import tf
from core.models.hybrid import HybridModel
from core.models.network import Network, Problem
from core.models.spectral import FARTHEST, SpectralModel
from core.models.tensorflow_operations import TensorFlowOperations
from core.models.window_statistics import BANDS, CHANGE, LAGS, SMALL, WEAK, WindowStatistics
from tests.core.models.yardstick import Vector, gradient_function, logits, passed, small


def recorded(count: int, steps: int, channels: int) -> Vector:
    random = np.random.default_rng(steps)
    time = np.arange(steps)[None, :, None] / 50
    waves = np.sin(2 * np.pi * random.uniform(0.5, 8, (count, 1, channels)) * time)
    return (waves + random.normal(0.5, 0.4, (count, steps, channels))).astype(np.float32)


def statistics_of(
    steps: int, channels: int, vectors: tuple[int, ...] | None = None
) -> WindowStatistics:
    sensors = Problem((steps, channels), 2, vectors=vectors).sensors
    return WindowStatistics(steps, channels, sensors)


def statistics(of: Any, vectors: tuple[int, ...] | None = None) -> Vector:
    """The product's statistics of windows, (windows, steps, channels)."""
    given = tf.constant(of, tf.float32)
    steps, channels = given.shape[1:]
    function = statistics_of(steps, channels, vectors)
    found: Vector = function(TensorFlowOperations({}), given).numpy()
    return found


def by_numpy(given: Vector) -> NDArray[np.float64]:
    """The statistics of windows of 128 steps by NumPy's FFT and statistics, in float64."""
    x = given.astype(np.float64)
    count, _, channels = x.shape
    sensors = channels % 3 == 0
    found = []
    for signals in (x, CHANGE * np.diff(x, axis=1)):
        if sensors:
            lengths = np.linalg.norm(signals.reshape(*signals.shape[:2], -1, 3), axis=3)
            signals = np.concatenate([signals, lengths], 2)
        mean = signals.mean(1)
        centred = signals - mean[:, None]
        found += [mean, signals.std(1), np.abs(centred).mean(1), signals.max(1), signals.min(1)]
        found.append((signals**2).mean(1))
        spectrum = np.log1p(np.abs(np.fft.rfft(centred, axis=1)) ** 2)
        found += [spectrum[:, begin:end].mean(1) for begin, end in itertools.pairwise(BANDS)]
        found.append(spectrum[:, 1:].max(1))
        for lag in LAGS:
            found.append((centred[:, lag:] * centred[:, :-lag]).mean(1) / (signals.var(1) + SMALL))
    correlated = np.array([np.corrcoef(window.T) for window in x])
    places = np.arange(channels)
    before = places - places % 3 + (places - 1) % 3 if sensors else places - 1
    found.append(correlated[:, places, before])
    if sensors:
        mean = x.mean(1).reshape(count, -1, 3)
        length = np.linalg.norm(mean, axis=2, keepdims=True)
        found.append((mean / (length + WEAK)).reshape(count, -1))
    return np.concatenate(found, 1)


@pytest.mark.parametrize(("channels", "count"), [(6, 428), (9, 642), (4, 212)])
def test_the_statistics_are_those_of_numpy(channels: int, count: int) -> None:
    given = recorded(5, 128, channels)
    found = statistics(given)
    assert found.shape == (5, count)
    np.testing.assert_allclose(found, by_numpy(given), rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("steps", [8, 13, 127, 200, 300, 600])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_any_length_and_any_channels_have_as_many_as_they_say(steps: int, channels: int) -> None:
    found = statistics(recorded(2, steps, channels))
    assert found.shape == (2, statistics_of(steps, channels).count)
    assert np.isfinite(found).all()


def test_a_window_that_stands_still_has_finite_statistics() -> None:
    assert np.isfinite(statistics(tf.ones([1, 128, 6]))).all()


RAW = recorded(40, 16, 6) * np.array([1, 2, 4, 1, 2, 4], np.float32) + 3
MEASURED = np.stack([RAW.mean((0, 1)), RAW.std((0, 1))])
STANDARD = (RAW - MEASURED[0]) / MEASURED[1]


@pytest.fixture(scope="module")
def network() -> Network:
    return small(SpectralModel(hidden=8), 16, 6)


def measured(network: Network, *blocks: Vector) -> Vector:
    return network.measured(network.initial(0), MEASURED, blocks)


@pytest.fixture(scope="module")
def vector(network: Network) -> Vector:
    return measured(network, STANDARD[:30], STANDARD[30:])


def test_statistics_are_standardized_over_the_training_windows_with_one_scale_a_sensor(
    network: Network, vector: Vector
) -> None:
    kept = network.layout.unpack(vector)
    raw = STANDARD * kept["statistics/scale"] + kept["statistics/shift"]
    # Turning needs one unit for x, y and z: the deviations of the channels lie as they did, 1 : 2 :
    # 4.
    deviations = raw.std((0, 1))
    np.testing.assert_allclose(deviations[1] / deviations[0], 2, rtol=0.2)
    found = statistics(raw)
    np.testing.assert_allclose(kept["statistics/mean"], found.mean(0), rtol=1e-3, atol=1e-4)
    varied = found.std(0) > 1e-3
    kept_deviation = kept["statistics/deviation"][varied]
    np.testing.assert_allclose(kept_deviation, found.std(0)[varied], rtol=1e-2)


def test_the_blocks_that_are_measured_do_not_matter(network: Network, vector: Vector) -> None:
    whole = measured(network, STANDARD)
    np.testing.assert_allclose(vector, whole, rtol=1e-5, atol=1e-6)
    other = network.measured(network.initial(0), MEASURED + 1, [STANDARD])
    assert not np.array_equal(other, whole)
    trained = network.layout.trained_size
    np.testing.assert_array_equal(whole[:trained], network.initial(0)[:trained])


BEGUN = "f8ffe9e7a9e573d4873a7732cd7e0ed6ceb9a6fae559517f1407c9f73a8a734e"
"""The digest of `begun`, whatever processor computes it."""


def begun() -> str:
    """The digest of what a small one of the shipped networks begins with."""
    network = small(HybridModel(filters=8, hidden=8, layers=1, statistics_hidden=8), 64, 6)
    windows = np.random.default_rng(7).uniform(-1, 1, (40, 64, 6)).astype(np.float32)
    moments = np.full((2, 6), 0.5, np.float32)
    vector = network.measured(network.initial(0), moments, [windows])
    return hashlib.sha256(vector.tobytes()).hexdigest()


def test_a_coordinator_without_avx2_measures_the_same_bits() -> None:
    program = f"from {__name__} import begun; print(begun())"
    older = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX", "PSCLUSTER_KERNELS": "scalar"}
    found = subprocess.check_output([sys.executable, "-c", program], env=older, text=True)
    assert (found.strip(), begun()) == (BEGUN, BEGUN)


def test_an_installation_without_the_library_measures_about_the_same(
    network: Network, vector: Vector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernels.library.can_be_loaded", lambda: False)
    found = measured(network, STANDARD[:30], STANDARD[30:])
    np.testing.assert_allclose(found, vector, rtol=1e-4, atol=1e-5)
    assert not np.array_equal(found, vector)


def test_a_statistic_far_off_is_cut_off(network: Network, vector: Vector) -> None:
    named = network.layout.unpack(vector)
    kernels = np.abs(named["hidden/kernel"]).sum(0) @ np.abs(named["head/kernel"])
    far = logits(network, STANDARD * 1e6, vector)
    assert (np.abs(far) <= FARTHEST * kernels + 1).all()


def test_what_is_never_trained_is_handed_back_and_not_differentiated(
    network: Network, vector: Vector
) -> None:
    """To differentiate it cost six times the rest."""
    batch = tf.constant(STANDARD[:10])
    _, gradient = gradient_function(network)(tf.constant(vector), batch)
    assert not gradient.numpy()[network.layout.trained_size :].any()
    output = passed(network, batch, vector, training=True)
    untrained = {slot.spec.name for slot in network.layout.slots if not slot.spec.trained}
    assert set(output.statistics) == untrained
