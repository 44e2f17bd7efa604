"""The drift that a service measures: figures, their bounds, and where they stay away."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from core.exported.description import ChannelStatistics, Description
from recognise.service.metrics import (
    CLIPPED_AT,
    LEAST_WINDOWS,
    LONGEST_SECONDS,
    MOST_CHANNELS,
    MOST_WINDOWS,
    DriftFigures,
    Floats,
    Recent,
    least_confidence,
)
from tests.core.exported import small
from tests.deploy.playing import eventually
from tests.recognise.service.exports import export, windows
from tests.recognise.service.running import PATH, Service, as_json, manage, served

MEAN = (0.5, -2.0, 100.0)
DEVIATION = (2.0, 0.1, 30.0)
SURE = (9.0, 0.0)
UNSURE = (0.1, 0.0)
ENOUGH = 2 * LEAST_WINDOWS
HUGE = np.finfo(np.float32).max


def described(
    mean: tuple[float, ...] = MEAN, deviation: tuple[float, ...] = DEVIATION
) -> Description:
    return replace(small.described(b""), standardization=ChannelStatistics(mean, deviation))


def like_training(count: int, seed: int = 0, factor: float = 1.0) -> Floats:
    found: Floats = (factor * (windows(count, seed) * DEVIATION + MEAN)).astype(np.float32)
    return found


class Watched(Recent):
    """The recent windows of an export, at a time that the test sets."""

    def __init__(self, description: Description | None = None) -> None:
        self.now = 1000.0
        super().__init__(description or described(), lambda: self.now)

    def hears(self, given: Floats, one: tuple[float, float] = SURE) -> "Watched":
        """Add windows that all got this answer."""
        self.add(given, answers(len(given), one))
        return self

    @property
    def found(self) -> DriftFigures:
        """The figures, which are there."""
        figures = self.figures()
        assert figures is not None
        return figures

    @property
    def distances(self) -> list[float]:
        return list(self.found.distance.values())


def answers(count: int, one: tuple[float, float] = SURE) -> Floats:
    return np.tile(np.array(one, np.float32), (count, 1))


def same(found: DriftFigures, expected: DriftFigures) -> bool:
    """But for the order in which numbers were added."""
    near = pytest.approx(expected.distance, rel=1e-9)
    return found == replace(expected, distance=found.distance) and found.distance == near


def test_the_distance_is_that_of_the_moments_in_deviations_of_the_channel() -> None:
    given = like_training(ENOUGH)
    given[..., 0] += 3 * DEVIATION[0]
    given[..., 1] = MEAN[1] + 4 * (given[..., 1] - MEAN[1])
    found = Watched().hears(given).distances
    z = (given.astype(float) - MEAN) / DEVIATION
    expected = np.sqrt(z.mean((0, 1)) ** 2 + (z.std((0, 1)) - 1) ** 2)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found, [3, 3, 0], atol=0.2)


def test_an_answer_is_unsure_below_the_middle_between_guessing_and_certainty() -> None:
    assert least_confidence(6) == pytest.approx(7 / 12)
    recent = Watched().hears(like_training(30), UNSURE).hears(like_training(90))
    assert recent.found.low_confidence == 0.25


@pytest.mark.parametrize("count", [0, 1, LEAST_WINDOWS - 1])
def test_few_windows_give_no_figure(count: int) -> None:
    assert Watched().hears(like_training(count, factor=1e9), UNSURE).figures() is None


def test_the_last_thousand_windows_count_however_they_come() -> None:
    recent = Watched()
    for seed, count in enumerate((MOST_WINDOWS, 1, 63, 512)):
        recent.hears(like_training(count, seed, 1e3), UNSURE)
    good = like_training(MOST_WINDOWS + 7)
    last = Watched().hears(good[-MOST_WINDOWS:]).found
    for at in range(0, len(good), 64):
        recent.hears(good[at : at + 64])
    assert same(recent.found, last)
    recent.hears(np.concatenate([like_training(500, factor=1e3), good]))
    assert same(recent.found, last)


def test_old_windows_are_forgotten() -> None:
    recent = Watched().hears(like_training(ENOUGH, factor=1e3), UNSURE)
    recent.now += LONGEST_SECONDS / 2
    recent.hears(like_training(ENOUGH))
    assert (recent.found.windows, recent.found.low_confidence) == (2 * ENOUGH, 0.5)
    recent.now += LONGEST_SECONDS / 2 + 1
    assert same(recent.found, Watched().hears(like_training(ENOUGH)).found)
    recent.now += LONGEST_SECONDS
    assert recent.figures() is None


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_windows_without_a_finite_answer_do_not_count(value: float) -> None:
    broken = like_training(60)
    broken[:, 3, 1] = np.nan
    recent = Watched().hears(like_training(50), (value, 0.0)).hears(broken)
    assert recent.hears(like_training(LEAST_WINDOWS - 1)).figures() is None


@pytest.mark.filterwarnings("error")
def test_one_window_of_huge_numbers_is_cut_off_and_raises_no_alarm() -> None:
    given = like_training(LEAST_WINDOWS)
    given[7] = HUGE
    assert 0.5 < max(Watched().hears(given).distances) < 1.5
    huge = Watched().hears(np.full_like(given, HUGE))
    np.testing.assert_allclose(huge.distances, np.hypot(CLIPPED_AT, 1))
    narrow = Watched(described(deviation=(5e-324,) * 3)).hears(like_training(LEAST_WINDOWS))
    assert np.isfinite(narrow.distances).all()


def test_channels_without_names_go_by_their_places_and_unknown_moments_by_no_distance() -> None:
    known = described()
    same = replace(known, input=replace(known.input, channels=("a", "a", "b")))
    assert Recent(same).channels == ("0", "1", "2")
    unknown = Watched(described((), ()))
    assert unknown.channels == ()
    found = unknown.hears(like_training(ENOUGH), UNSURE).found
    assert found == DriftFigures(ENOUGH, 1.0, {})
    many = 3 * MOST_CHANNELS
    given = replace(known.input, channels=(), shape=(small.STEPS, many))
    wide = Watched(replace(described((0.0,) * many, (1.0,) * many), input=given))
    wide.hears(np.zeros((ENOUGH, small.STEPS, many), np.float32))
    assert len(wide.distances) == MOST_CHANNELS


def test_what_a_version_answers_is_watched() -> None:
    recent = Recent(described())
    compute = recent.watched(lambda given: answers(len(given), UNSURE))
    np.testing.assert_array_equal(compute(like_training(ENOUGH)), answers(ENOUGH, UNSURE))
    figures = recent.figures()
    assert figures is not None
    assert figures.low_confidence == 1.0


def drift_of(running: Service) -> dict[str, float]:
    """The exported drift: `low_confidence_ratio` and `input_distance_ratio` by their labels."""
    figures = running.metrics().items()
    return {name: value for name, value in figures if "e_ratio{" in name}


def distances(version: int, found: dict[str, float]) -> list[float]:
    return [
        found[f'input_distance_ratio{{channel="{each}",version="{version}"}}'] for each in "xyz"
    ]


def test_a_service_exports_it_by_version_once_there_is_enough(tmp_path: Path) -> None:
    export(tmp_path / "export3", 3)
    with served(tmp_path) as running, running.client() as client:

        def ask(given: np.ndarray) -> dict[str, float]:
            assert client.post(f"{PATH}/infer", json=as_json(given)).status_code == 200
            return drift_of(running)

        assert ask(10 * windows(1)) == {}
        near = ask(windows(500))
        assert len(near) == 4
        assert max(distances(1, near)) < 0.3
        assert 0 <= near['low_confidence_ratio{version="1"}'] <= 1
        for seed in range(2):
            far = ask(9.80665 * windows(500, seed))
        assert min(distances(1, far)) > 5
        refused = as_json(windows(1))
        refused["inputs"][0]["data"][0] = None  # type: ignore[index]
        assert client.post(f"{PATH}/infer", json=refused).status_code == 400
        assert drift_of(running) == far
        assert manage(tmp_path, "promote", "--model", str(tmp_path / "export3")).returncode == 0
        eventually(lambda: client.get(PATH).json()["versions"] == ["1", "2"], "two versions")
        both = ask(windows(512))
        assert len(both) == 8
        assert max(distances(2, both)) < 0.3
