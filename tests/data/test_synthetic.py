"""The built-in recordings: seeded, balanced, by people, and neither trivial nor hopeless."""

from pathlib import Path

import numpy as np
import pytest

from cluster.data import Dataset, Source, prepare, synthetic
from cluster.data.recordings import Cutting, Recordings, silent
from cluster.errors import DataError

SOURCE = Source("synthetic", None, "asked")


@pytest.fixture(scope="module")
def recordings() -> Recordings:
    return synthetic.read(None, Cutting(128, 64, 0), silent)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return prepare(SOURCE, cache=tmp_path_factory.mktemp("cache"))


def test_every_person_does_every_activity_and_is_in_one_set(recordings: Recordings) -> None:
    train = recordings.train_windows
    assert 2_000 < train < 6_000
    assert recordings.windows.shape[1:] == (128, 9)
    assert np.unique(recordings.subjects[:train]).tolist() == list(range(1, 22))
    assert np.unique(recordings.subjects[train:]).tolist() == list(range(22, 31))
    counts = np.zeros((31, 6), dtype=int)
    np.add.at(counts, (recordings.subjects, recordings.classes), 1)
    assert set(counts[1:].ravel().tolist()) == {32}


def test_the_seed_decides_the_recordings(recordings: Recordings) -> None:
    np.testing.assert_array_equal(synthetic.read(None, Cutting(128, 64, 0), silent).windows, recordings.windows)
    assert not np.array_equal(synthetic.read(None, Cutting(128, 64, 1), silent).windows, recordings.windows)


def test_the_seed_is_part_of_the_cache_key(dataset: Dataset, tmp_path: Path) -> None:
    other = prepare(SOURCE, cache=tmp_path, seed=1)
    assert other.folder.name != dataset.folder.name
    assert other.sha256 != dataset.sha256
    assert prepare(SOURCE, cache=tmp_path, seed=0).sha256 == dataset.sha256


def test_windows_of_another_length_are_cut_and_longer_than_a_bout_refused(tmp_path: Path) -> None:
    dataset = prepare(SOURCE, window_steps=64, window_stride=32, cache=tmp_path)
    assert dataset.window_steps == 64
    with pytest.raises(DataError, match="synthetic recordings last 576 steps"):
        prepare(SOURCE, window_steps=577, cache=tmp_path)


def test_unseen_people_are_neither_trivial_nor_hopeless(recordings: Recordings) -> None:
    """A nearest-centroid rule on means and deviations is a weak reader: it must do well, and far from perfectly."""
    features = np.concatenate([recordings.windows.mean(axis=1), recordings.windows.std(axis=1)], axis=1)
    train = recordings.train_windows
    features = (features - features[:train].mean(axis=0)) / features[:train].std(axis=0)
    centroids = np.stack([features[:train][recordings.classes[:train] == index].mean(axis=0) for index in range(6)])
    distances = np.linalg.norm(features[train:, None] - centroids, axis=2)
    accuracy = float((distances.argmin(axis=1) == recordings.classes[train:]).mean())
    assert 0.6 < accuracy < 0.95
