"""The figures a reader of the real recordings is held against.

DESIGN section 4 is where they come from.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.data import Dataset, Source, hapt, prepare
from core.data.reader import open_set
from core.data.recordings import Cutting, silent
from core.data.table import integers_of
from tests.core.data.desk import Desk, has

TEST_SUBJECTS = {2, 4, 9, 10, 12, 13, 18, 20, 24}
SAMPLES_OF_BASIC_ACTIVITIES = [122_091, 116_707, 107_961, 126_677, 138_105, 136_865]


@pytest.fixture(scope="module")
def dataset(published: Source, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return prepare(published, cache=tmp_path_factory.mktemp("cache"))


@pytest.fixture
def tree(published: Source) -> Iterator[Any]:
    """The files of the published set."""
    assert published.path is not None
    with open_set(published.path) as found:
        assert found is not None
        yield found[1]


def test_six_activities_give_the_published_windows(dataset: Dataset) -> None:
    still = ("SITTING", "STANDING", "LAYING")
    labels = ("WALKING", "WALKING_UPSTAIRS", "WALKING_DOWNSTAIRS", *still)
    has(dataset, train_windows=7_415, test_windows=2_996, input_shape=(128, 9), labels=labels)
    train, test = np.split(dataset.subjects(), [dataset.train_windows])
    assert (set(test), len(set(train))) == (TEST_SUBJECTS, 21)


def test_twelve_activities_equal_the_published_sequences_row_for_row(tree: Any) -> None:
    recordings = hapt.read(tree, Cutting(128, 64, 0), silent, all_activities=True)
    assert (recordings.train_windows, recordings.test_windows) == (7_767, 3_162)
    for what, found in (("y", recordings.classes + 1), ("subject_id", recordings.subjects)):
        names = (f"Train/{what}_train.txt", f"Test/{what}_test.txt")
        expected = [integers_of(tree, name).ravel() for name in names]
        np.testing.assert_array_equal(found, np.concatenate(expected))


def test_rows_and_labelled_samples_are_the_published_ones(tree: Any) -> None:
    samples = np.zeros(12, dtype=np.int64)
    for segment in hapt.read_segments(tree, 12):
        samples[segment.activity] += segment.stop - segment.start
    recordings = [name for name in tree.names() if hapt.RECORDING.fullmatch(name)]
    assert len(recordings) == 61
    assert samples[:6].tolist() == SAMPLES_OF_BASIC_ACTIVITIES
    assert sum(tree.read(name).count(b"\n") for name in recordings) == 1_122_772


def test_channels_are_physical(dataset: Dataset) -> None:
    body, turning, total = np.split(dataset.windows(), 3, axis=2)
    gravity = np.linalg.norm((total - body).mean(axis=1), axis=1)
    assert 0.95 < float(np.median(gravity)) < 1.05
    assert abs(float(body.mean())) < 0.01
    assert 0.1 < float(turning.std()) < 2.0


@pytest.mark.long
def test_a_folder_gives_the_same_windows_as_the_zip(
    dataset: Dataset, tree: Any, tmp_path: Path
) -> None:
    desk = Desk(tmp_path)
    again = desk.read("set", {name: tree.read(name) for name in hapt.wanted(tree.names())})
    assert again.sha256 == dataset.sha256
    assert again.source_sha256 != dataset.source_sha256
