"""The reader of the classic nine inertial-signal files."""

from pathlib import Path

import numpy as np
import pytest

from cluster.data import Dataset, find_source, prepare
from cluster.data.filters import CHANNELS
from cluster.errors import DataError
from tests.data.makers import table, uci_har_files, write_folder, write_zip

SIGNAL = "train/Inertial Signals/body_gyro_y_train.txt"


def read(path: Path, cache: Path, window_steps: int = 128) -> Dataset:
    return prepare(find_source(str(path), {}, path, path), cache=cache, window_steps=window_steps)


def test_folder_and_zip_give_the_published_windows_in_channel_order(tmp_path: Path) -> None:
    files = uci_har_files()
    folder = read(write_folder(tmp_path / "UCI HAR Dataset", files), tmp_path / "cache")
    packed = read(write_zip(tmp_path / "set.zip", files, prefix="UCI HAR Dataset/"), tmp_path / "cache")
    assert folder.sha256 == packed.sha256
    assert (folder.name, folder.train_windows, folder.test_windows) == ("uci-har", 8, 6)
    assert folder.classes().tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 5, 4, 3, 2, 1, 0]
    assert folder.subjects().tolist() == [1] * 4 + [2] * 4 + [3] * 6
    for index, channel in enumerate(CHANNELS):
        expected = [
            np.loadtxt(files[f"{part}/Inertial Signals/{channel}_{part}.txt"].decode().splitlines())
            for part in ("train", "test")
        ]
        np.testing.assert_allclose(folder.windows()[:, :, index], np.concatenate(expected), rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        (SIGNAL, None, [SIGNAL, "missing"]),
        (SIGNAL, table(np.zeros((7, 128))), [SIGNAL, "expected 8 rows as in train/y_train.txt, got 7"]),
        (SIGNAL, table(np.zeros((8, 127))), [f"{SIGNAL}:1:", "expected 128 numbers, got 127"]),
        (SIGNAL, table(np.full((8, 128), np.nan)), [f"{SIGNAL}:1:", "finite"]),
        ("test/y_test.txt", b"1\n2\n3\n4\n5\n7\n", ["test/y_test.txt:6:", "from 1 to 6, got 7"]),
        ("test/y_test.txt", b"0\n2\n3\n4\n5\n6\n", ["test/y_test.txt:1:", "from 1 to 6, got 0"]),
        ("test/subject_test.txt", b"3\n3\n", ["test/subject_test.txt", "expected 6 rows"]),
        ("test/subject_test.txt", b"1\n1\n1\n1\n1\n1\n", ["subject 1 is in the training and in the test set"]),
        ("train/y_train.txt", b"1\n2\n3\n4\n5\n5\n1\n2\n", ["class 5 ('LAYING') has no training window"]),
    ],
)
def test_damage_is_one_error_that_names_the_file(
    tmp_path: Path, name: str, content: bytes | None, expected: list[str]
) -> None:
    files = uci_har_files()
    if content is None:
        del files[name]
    else:
        files[name] = content
    path = write_folder(tmp_path / "set", files)
    with pytest.raises(DataError) as caught:
        read(path, tmp_path / "cache")
    for part in (str(path), *expected):
        assert part in str(caught.value)
    assert not (tmp_path / "cache").exists()


def test_windows_of_another_length_cannot_be_cut_from_this_set(tmp_path: Path) -> None:
    path = write_folder(tmp_path / "set", uci_har_files())
    with pytest.raises(DataError, match="comes cut into windows of 128 steps, got 64"):
        read(path, tmp_path / "cache", window_steps=64)
