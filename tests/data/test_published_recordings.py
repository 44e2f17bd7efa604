"""The figures a reader of the real recordings is held against; DESIGN section 4 is where they come from."""

from pathlib import Path

import numpy as np
import pytest

from cluster.data import Dataset, Source, hapt, prepare
from cluster.data.archive import open_tree
from cluster.data.reader import open_set
from cluster.data.recordings import Cutting, silent
from cluster.data.table import parse_integers

TEST_SUBJECTS = [2, 4, 9, 10, 12, 13, 18, 20, 24]
SAMPLES_OF_BASIC_ACTIVITIES = [122_091, 116_707, 107_961, 126_677, 138_105, 136_865]


@pytest.fixture(scope="module")
def dataset(published: Source, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return prepare(published, cache=tmp_path_factory.mktemp("cache"))


def test_six_activities_give_the_published_windows(dataset: Dataset) -> None:
    assert (dataset.train_windows, dataset.test_windows) == (7_415, 2_996)
    assert (dataset.window_steps, dataset.channels) == (128, 9)
    assert dataset.labels == (
        "WALKING",
        "WALKING_UPSTAIRS",
        "WALKING_DOWNSTAIRS",
        "SITTING",
        "STANDING",
        "LAYING",
    )
    subjects = dataset.subjects()
    assert sorted(set(subjects[dataset.train_windows :].tolist())) == TEST_SUBJECTS
    assert len(set(subjects[: dataset.train_windows].tolist())) == 21


def test_twelve_activities_equal_the_published_sequences_row_for_row(published: Source) -> None:
    assert published.path is not None
    with open_set(published.path) as found:
        assert found is not None
        tree = found[1]
        recordings = hapt.read(tree, Cutting(128, 64, 0), silent, all_activities=True)
        expected = {
            (part, what): parse_integers(tree.read(f"{part.title()}/{what}_{part}.txt"), 1, what).ravel()
            for part in ("train", "test")
            for what in ("y", "subject_id")
        }
    train = recordings.train_windows
    assert (train, recordings.test_windows) == (7_767, 3_162)
    np.testing.assert_array_equal(recordings.classes[:train] + 1, expected["train", "y"])
    np.testing.assert_array_equal(recordings.classes[train:] + 1, expected["test", "y"])
    np.testing.assert_array_equal(recordings.subjects[:train], expected["train", "subject_id"])
    np.testing.assert_array_equal(recordings.subjects[train:], expected["test", "subject_id"])


def test_rows_and_labelled_samples_are_the_published_ones(published: Source) -> None:
    assert published.path is not None
    with open_set(published.path) as found:
        assert found is not None
        tree = found[1]
        samples = np.zeros(12, dtype=np.int64)
        for segment in hapt.read_segments(tree, 12):
            samples[segment.activity] += segment.stop - segment.start
        recordings = [name for name in tree.names() if hapt.RECORDING.fullmatch(name)]
        rows = sum(tree.read(name).count(b"\n") for name in recordings)
    assert len(recordings) == 61
    assert samples[:6].tolist() == SAMPLES_OF_BASIC_ACTIVITIES
    assert rows == 1_122_772


def test_channels_are_physical(dataset: Dataset) -> None:
    windows = dataset.windows()
    body, turning, total = windows[..., 0:3], windows[..., 3:6], windows[..., 6:9]
    gravity = np.linalg.norm((total - body).mean(axis=1), axis=1)
    assert 0.95 < float(np.median(gravity)) < 1.05
    assert abs(float(body.mean())) < 0.01
    assert 0.1 < float(turning.std()) < 2.0


@pytest.mark.long
def test_a_folder_gives_the_same_windows_as_the_zip(dataset: Dataset, published: Source, tmp_path: Path) -> None:
    assert published.path is not None
    with open_tree(published.path) as tree:
        for name in hapt.wanted(tree.names()):
            (tmp_path / "set" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "set" / name).write_bytes(tree.read(name))
    again = prepare(Source("hapt", tmp_path / "set", "copied"), cache=tmp_path / "cache")
    assert again.sha256 == dataset.sha256
    assert again.source_sha256 != dataset.source_sha256
