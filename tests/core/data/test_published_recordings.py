"""The figures that the kind `hapt` is held against, on the real recordings."""

import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.data import Dataset, Source, prepare
from core.data.described.known_formats import FOLDER, document
from tests.core.data.desk import Desk, has

TEST_SUBJECTS = {2, 4, 9, 10, 12, 13, 18, 20, 24}
SAMPLES_OF_BASIC_ACTIVITIES = [122_091, 116_707, 107_961, 126_677, 138_105, 136_865]
WINDOWS_SHA256 = "0e6b570225d5b864255614f994c4c4aaa9a948dfa4d0a8966cfc49ff580871c6"
"""Of float32 (10411, 128, 9), the training windows first."""
CLASSES_SHA256 = "3d9986575fd4ebbd82092342b0b6f80f1ff15ec2d7888a432c255c3369894ef8"
SUBJECTS_SHA256 = "9c0eb22d23c2c690dd7983943d629f537d30938d2cd435675c64747bdbc1b68d"
"""Of int32 (10411,), in the order of the windows."""
TRANSITIONS = (
    "STAND_TO_SIT",
    "SIT_TO_STAND",
    "SIT_TO_LIE",
    "LIE_TO_SIT",
    "STAND_TO_LIE",
    "LIE_TO_STAND",
)


@pytest.fixture(scope="module")
def dataset(published: Source, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return prepare(published, cache=tmp_path_factory.mktemp("cache"))


def sha256(array: np.ndarray[Any, Any]) -> str:
    return hashlib.sha256(array.tobytes()).hexdigest()


def test_six_activities_give_the_published_windows_to_the_bit(dataset: Dataset) -> None:
    still = ("SITTING", "STANDING", "LAYING")
    labels = ("WALKING", "WALKING_UPSTAIRS", "WALKING_DOWNSTAIRS", *still)
    has(dataset, train_windows=7_415, test_windows=2_996, input_shape=(128, 9), labels=labels)
    train, test = np.split(dataset.subjects(), [dataset.train_windows])
    assert (set(test), len(set(train))) == (TEST_SUBJECTS, 21)
    arrays = (dataset.windows(), dataset.classes(), dataset.subjects())
    expected = (WINDOWS_SHA256, CLASSES_SHA256, SUBJECTS_SHA256)
    assert tuple(map(sha256, arrays)) == expected


@pytest.mark.long
def test_twelve_activities_equal_the_published_sequences_row_for_row(
    published: Source, tmp_path: Path
) -> None:
    """A format of a person's own, with the transitions as classes too."""
    assert published.path is not None
    own = {**document(FOLDER / "hapt.yaml")[0]}
    numbers = dict(enumerate(TRANSITIONS, 7))
    own["label"]["words"].update({str(number): name for number, name in numbers.items()})
    places = {name: place for place, name in enumerate(own["label"]["words"].values(), 1)}
    Desk(tmp_path).write("own.yaml", json.dumps(own))
    source = Source("described", published.path, "as asked")
    options = {"format": str(tmp_path / "own.yaml"), "nine_channels": True}
    dataset = prepare(source, cache=tmp_path / "cache", options=options)
    assert (dataset.train_windows, dataset.test_windows) == (7_767, 3_162)
    people = np.array(list(map(int, dataset.held_out.groups)))[dataset.subjects()]
    activities = np.array([places[name] for name in dataset.labels])[dataset.classes()]
    with zipfile.ZipFile(published.path) as archive:
        for what, found in (("y", activities), ("subject_id", people)):
            names = (f"Train/{what}_train.txt", f"Test/{what}_test.txt")
            expected = [int(word) for name in names for word in archive.read(name).split()]
            np.testing.assert_array_equal(found, expected)


def test_rows_and_labelled_samples_are_the_published_ones(dataset: Dataset) -> None:
    left_out = 1_122_772 - sum(SAMPLES_OF_BASIC_ACTIVITIES)
    note = f"61 sessions; 1,122,772 readings; {left_out:,} without a label"
    assert dataset.held_out.note.endswith(note)
