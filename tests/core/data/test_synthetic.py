"""The built-in recordings: seeded, balanced, by people."""

import numpy as np
import pytest

from core.data import synthetic
from core.data.recordings import Cutting, Recordings, silent
from tests.core.data.desk import Desk, refused


@pytest.fixture(scope="module")
def recordings() -> Recordings:
    return synthetic.read_synthetic(None, Cutting(128, 64, 0), silent)


def test_every_person_does_every_activity_and_is_in_one_set(recordings: Recordings) -> None:
    train = recordings.train_windows
    assert recordings.windows.shape[1:] == (128, 9)
    assert 2_000 < train < 6_000
    assert np.unique(recordings.subjects[:train]).tolist() == list(range(1, 22))
    assert np.unique(recordings.subjects[train:]).tolist() == list(range(22, 31))
    counts = np.zeros((31, 6), dtype=int)
    np.add.at(counts, (recordings.subjects, recordings.classes), 1)
    assert (counts[1:] == 32).all()


def test_the_seed_decides_the_recordings_and_is_part_of_the_cache_key(
    desk: Desk, recordings: Recordings
) -> None:
    one, other = (desk.read("synthetic", seed=seed) for seed in (0, 1))
    np.testing.assert_array_equal(one.windows(), recordings.windows)
    assert not np.array_equal(other.windows(), recordings.windows)
    assert other.folder.name != one.folder.name
    assert other.sha256 != one.sha256


def test_windows_of_another_length_are_cut_and_longer_than_a_bout_refused(desk: Desk) -> None:
    assert desk.read("synthetic", window_steps=64, window_stride=288).window_steps == 64
    with refused("synthetic recordings last 576 steps"):
        desk.read("synthetic", window_steps=577)
