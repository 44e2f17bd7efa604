"""What the service measures about the windows of late: figures, their bounds, and where they stay away."""

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from cluster.exported.description import Description, Standardization
from recognise.service.drift import (
    CLIPPED_AT,
    LEAST_WINDOWS,
    LONGEST_SECONDS,
    MOST_CHANNELS,
    MOST_WINDOWS,
    Drift,
    Figures,
    Floats,
    Recent,
    least_confidence,
)
from tests.exported import small
from tests.service.exports import export, windows
from tests.service.running import PATH, as_json, manage, service

MEAN, DEVIATION = (0.5, -2.0, 100.0), (2.0, 0.1, 30.0)
SURE, UNSURE = (9.0, 0.0), (0.1, 0.0)
LOW, DISTANCE = "pscluster_service_low_confidence_ratio", "pscluster_service_input_distance_ratio"
HANG_SECONDS = 30.0
ENOUGH = 2 * LEAST_WINDOWS


class Clock:
    """A time that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def described(mean: tuple[float, ...] = MEAN, deviation: tuple[float, ...] = DEVIATION) -> Description:
    return replace(small.described(b""), standardization=Standardization(mean, deviation))


def like_training(count: int, seed: int = 0, factor: float = 1.0) -> Floats:
    found: Floats = (factor * (windows(count, seed) * DEVIATION + MEAN)).astype(np.float32)
    return found


def answers(count: int, one: tuple[float, float] = SURE) -> Floats:
    return np.tile(np.array(one, np.float32), (count, 1))


def after(given: Floats, one: tuple[float, float] = SURE) -> Figures:
    """The figures after these windows alone."""
    recent = Recent(described())
    recent.add(given, answers(len(given), one))
    found = recent.figures()
    assert found is not None
    return found


def same(found: Figures | None, expected: Figures) -> bool:
    """But for the order in which numbers were added."""
    assert found is not None
    counts = (found.windows, found.low_confidence) == (expected.windows, expected.low_confidence)
    return counts and found.distance == pytest.approx(expected.distance, rel=1e-9)


def test_windows_like_those_of_the_training_are_near_them() -> None:
    found = after(like_training(MOST_WINDOWS))
    assert (found.windows, found.low_confidence, list(found.distance)) == (MOST_WINDOWS, 0.0, ["x", "y", "z"])
    assert max(found.distance.values()) < 0.05


def test_the_distance_is_that_of_the_moments_in_deviations_of_the_channel() -> None:
    given = like_training(ENOUGH)
    given[..., 0] += 3 * DEVIATION[0]
    given[..., 1] = MEAN[1] + 4 * (given[..., 1] - MEAN[1])
    found = after(given).distance
    z = (given.astype(float) - MEAN) / DEVIATION
    expected = np.sqrt(z.mean((0, 1)) ** 2 + (z.std((0, 1)) - 1) ** 2)
    np.testing.assert_allclose(list(found.values()), expected, rtol=1e-5, atol=1e-5)
    assert found["x"] == pytest.approx(3, abs=0.1)
    assert found["y"] == pytest.approx(3, abs=0.2)
    assert found["z"] < 0.1


def test_a_constant_signal_is_one_deviation_of_spread_away_and_no_infinity() -> None:
    still = np.broadcast_to(np.array(MEAN, np.float32), (ENOUGH, small.STEPS, small.CHANNELS))
    np.testing.assert_allclose(list(after(still).distance.values()), 1.0, atol=1e-3)
    moved = still + 2 * np.array(DEVIATION, np.float32)
    np.testing.assert_allclose(list(after(moved).distance.values()), np.hypot(2, 1), atol=1e-3)


def test_an_answer_is_unsure_below_the_middle_between_guessing_and_certainty() -> None:
    assert least_confidence(6) == pytest.approx(7 / 12)
    recent = Recent(described())
    recent.add(like_training(30), answers(30, UNSURE))
    recent.add(like_training(90), answers(90))
    found = recent.figures()
    assert found is not None
    assert found.low_confidence == 0.25


@pytest.mark.parametrize("count", [1, LEAST_WINDOWS - 1])
def test_few_windows_give_no_figure(count: int) -> None:
    recent = Recent(described())
    assert recent.figures() is None
    recent.add(like_training(count, factor=1e9), answers(count, UNSURE))
    assert recent.figures() is None


def test_the_last_thousand_windows_count_however_they_come() -> None:
    recent = Recent(described())
    for seed, count in enumerate((MOST_WINDOWS, 1, 63, 512)):
        recent.add(like_training(count, seed, 1e3), answers(count, UNSURE))
    good = like_training(MOST_WINDOWS + 7)
    for at in range(0, len(good), 64):
        part = good[at : at + 64]
        recent.add(part, answers(len(part)))
    assert same(recent.figures(), after(good[-MOST_WINDOWS:]))
    recent.add(np.concatenate([like_training(500, factor=1e3), good]), answers(500 + len(good)))
    assert same(recent.figures(), after(good[-MOST_WINDOWS:]))


def test_old_windows_are_forgotten() -> None:
    clock = Clock()
    recent = Recent(described(), clock)
    recent.add(like_training(ENOUGH, factor=1e3), answers(ENOUGH, UNSURE))
    clock.now += LONGEST_SECONDS / 2
    recent.add(like_training(ENOUGH), answers(ENOUGH))
    found = recent.figures()
    assert found is not None
    assert (found.windows, found.low_confidence) == (2 * ENOUGH, 0.5)
    clock.now += LONGEST_SECONDS / 2 + 1
    assert same(recent.figures(), after(like_training(ENOUGH)))
    clock.now += LONGEST_SECONDS
    assert recent.figures() is None


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_windows_without_a_finite_answer_do_not_count(value: float) -> None:
    recent = Recent(described())
    recent.add(like_training(50), answers(50, (value, 0.0)))
    broken = like_training(60)
    broken[:, 3, 1] = np.nan
    recent.add(broken, answers(60))
    recent.add(like_training(LEAST_WINDOWS - 1), answers(LEAST_WINDOWS - 1))
    assert recent.figures() is None


@pytest.mark.filterwarnings("error")
def test_one_window_of_huge_numbers_is_cut_off_and_raises_no_alarm() -> None:
    given = like_training(LEAST_WINDOWS)
    given[7] = np.finfo(np.float32).max
    assert 0.5 < max(after(given).distance.values()) < 1.5
    given[:] = np.finfo(np.float32).max
    np.testing.assert_allclose(list(after(given).distance.values()), np.hypot(CLIPPED_AT, 1))
    recent = Recent(described(deviation=(5e-324,) * 3))
    recent.add(like_training(LEAST_WINDOWS), answers(LEAST_WINDOWS))
    found = recent.figures()
    assert found is not None
    assert np.isfinite(list(found.distance.values())).all()


def test_channels_without_names_go_by_their_places_and_unknown_moments_by_no_distance() -> None:
    same = replace(described(), input=replace(small.described(b"").input, channels=("a", "a", "b")))
    assert Recent(same).channels == ("0", "1", "2")
    assert Recent(described((), ())).channels == ()
    recent = Recent(described((), ()))
    recent.add(like_training(ENOUGH), answers(ENOUGH, UNSURE))
    assert recent.figures() == Figures(ENOUGH, 1.0, {})
    many = 3 * MOST_CHANNELS
    wide = replace(
        described((0.0,) * many, (1.0,) * many), input=replace(same.input, channels=(), shape=(small.STEPS, many))
    )
    recent = Recent(wide)
    recent.add(np.zeros((ENOUGH, small.STEPS, many), np.float32), answers(ENOUGH))
    found = recent.figures()
    assert found is not None
    assert len(found.distance) == MOST_CHANNELS


def test_each_open_version_has_figures_of_its_own() -> None:
    drift = Drift()
    first = drift.watched(1, described(), lambda given: answers(len(given)))
    second = drift.watched(2, described(), lambda given: answers(len(given), UNSURE))
    np.testing.assert_array_equal(first(like_training(ENOUGH)), answers(ENOUGH))
    second(like_training(1))
    assert list(drift.figures()) == [1]
    second(like_training(ENOUGH))
    assert {number: found.low_confidence for number, found in drift.figures().items()} == {1: 0.0, 2: 1.0}
    drift.keep([2, 3])
    assert list(drift.figures()) == [2]


def exported(text: str) -> dict[str, dict[str, float]]:
    """Values of the drift by version, or by version and channel."""
    return {
        family.name: {
            "/".join(sample.labels[name] for name in ("version", "channel") if name in sample.labels): sample.value
            for sample in family.samples
        }
        for family in text_string_to_metric_families(text)
        if family.name in (LOW, DISTANCE)
    }


def test_a_service_exports_it_by_version_once_there_is_enough(tmp_path: Path) -> None:
    for factor in (1, 3):
        export(tmp_path / f"export{factor}", factor)
    with service(tmp_path, "--model", str(tmp_path / "export1")) as running, running.client() as client:

        def ask(given: np.ndarray) -> None:
            assert client.post(f"{PATH}/infer", json=as_json(given)).status_code == 200

        ask(10 * windows(1))
        assert exported(client.get("/metrics").text) == {LOW: {}, DISTANCE: {}}
        for seed in range(10):
            ask(windows(50, seed))
        near = exported(client.get("/metrics").text)
        assert set(near[DISTANCE]) == {"1/x", "1/y", "1/z"}
        assert max(near[DISTANCE].values()) < 0.3
        assert 0 <= near[LOW]["1"] <= 1
        for seed in range(10):
            ask(9.80665 * windows(100, seed))
        far = exported(client.get("/metrics").text)
        assert min(far[DISTANCE].values()) > 5
        refused = as_json(windows(1))
        refused["inputs"][0]["data"][0] = None  # type: ignore[index]
        assert client.post(f"{PATH}/infer", json=refused).status_code == 400
        assert exported(client.get("/metrics").text) == far
        assert manage(tmp_path, "promote", "--model", str(tmp_path / "export3")).returncode == 0
        end = time.monotonic() + HANG_SECONDS
        while client.get(PATH).json()["versions"] == ["1"]:
            assert time.monotonic() < end
        ask(windows(512))
        both = exported(client.get("/metrics").text)
        assert set(both[LOW]) == {"1", "2"}
        assert max(value for at, value in both[DISTANCE].items() if at.startswith("2/")) < 0.3
