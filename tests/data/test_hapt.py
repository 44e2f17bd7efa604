"""The reader of raw recordings, on a small set that each test damages in its own way."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cluster.data import Dataset, find_source, prepare
from cluster.errors import DataError
from tests.data.makers import SEGMENT_ROWS, Files, hapt_files, table, write_folder, write_zip

ACC = "RawData/acc_exp02_user02.txt"
GYRO = "RawData/gyro_exp02_user02.txt"
SEGMENTS = "RawData/labels.txt"


def read(path: Path, cache: Path, window_steps: int = 128, window_stride: int = 64) -> Dataset:
    source = find_source(str(path), {}, path, path)
    return prepare(source, cache=cache, window_steps=window_steps, window_stride=window_stride)


def test_zip_prefixed_zip_nested_zip_and_folder_give_the_same_windows(tmp_path: Path) -> None:
    files = hapt_files()
    inner = write_zip(tmp_path / "inner.zip", files, prefix="HAPT Data Set/")
    paths = [
        write_folder(tmp_path / "folder", files),
        write_zip(tmp_path / "plain.zip", files),
        write_zip(tmp_path / "prefixed.zip", files, prefix="HAPT Data Set/"),
        write_zip(tmp_path / "nested.zip", {"HAPT Data Set.zip": inner.read_bytes(), "names.txt": b"about"}),
    ]
    datasets = [read(path, tmp_path / "cache") for path in paths]
    assert len({dataset.sha256 for dataset in datasets}) == 1
    assert len({dataset.folder for dataset in datasets}) == 4
    first = datasets[0]
    assert (first.train_windows, first.test_windows) == (2 * 6 * 3, 6 * 3)
    assert first.classes()[: first.train_windows].tolist() == [*np.repeat(np.arange(6), 3)] * 2
    assert first.subjects().tolist() == [1] * 18 + [2] * 18 + [3] * 18


@pytest.mark.parametrize(
    ("window_steps", "window_stride", "per_segment"),
    [(SEGMENT_ROWS, 1, 1), (SEGMENT_ROWS - 1, 1, 2), (1, SEGMENT_ROWS, 1), (100, 100, 3), (101, 100, 2)],
)
def test_first_and_last_row_of_a_segment_belong_to_it(
    tmp_path: Path, window_steps: int, window_stride: int, per_segment: int
) -> None:
    path = write_folder(tmp_path / "set", hapt_files())
    dataset = read(path, tmp_path / "cache", window_steps, window_stride)
    assert dataset.train_windows + dataset.test_windows == 3 * 6 * per_segment
    assert dataset.window_steps == window_steps


def test_own_activities_are_all_kept_and_transitions_left_out_wherever_they_stand(tmp_path: Path) -> None:
    files = hapt_files()
    names = ["WALKING", "STAND_TO_SIT", "JUMPING", "SITTING", "STANDING", "LAYING", "ROWING"]
    files["activity_labels.txt"] = "".join(f"{number} {name}\n" for number, name in enumerate(names, 1)).encode()
    dataset = read(write_folder(tmp_path / "set", files), tmp_path / "cache")
    assert dataset.labels == ("WALKING", "JUMPING", "SITTING", "STANDING", "LAYING", "ROWING")
    assert dataset.classes().tolist() == [*np.repeat(np.arange(6), 3)] * 3
    whole = read(write_folder(tmp_path / "whole", hapt_files()), tmp_path / "cache")
    np.testing.assert_array_equal(dataset.windows()[3:6], whole.windows()[6:9])


def replace_line(name: str, line: int, text: bytes) -> Callable[[Files], None]:
    def damage(files: Files) -> None:
        lines = files[name].splitlines(keepends=True)
        lines[line - 1] = text
        files[name] = b"".join(lines)

    return damage


def remove(name: str) -> Callable[[Files], None]:
    def damage(files: Files) -> None:
        del files[name]

    return damage


def put(name: str, content: bytes) -> Callable[[Files], None]:
    def damage(files: Files) -> None:
        files[name] = content

    return damage


def cut_rows(name: str, rows: int) -> Callable[[Files], None]:
    def damage(files: Files) -> None:
        files[name] = b"".join(files[name].splitlines(keepends=True)[:rows])

    return damage


def both(*damages: Callable[[Files], None]) -> Callable[[Files], None]:
    def damage(files: Files) -> None:
        for one in damages:
            one(files)

    return damage


@pytest.mark.parametrize("packed", [False, True], ids=["folder", "zip"])
@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (replace_line(ACC, 7, b"0.1 0.2\n"), [f"{ACC}:7:", "expected 3 numbers, got 2"]),
        (replace_line(ACC, 7, b"0.1 0.2 0.3 0.4\n"), [f"{ACC}:7:", "got 4"]),
        (replace_line(ACC, 7, b"\n0.1 0.2\n"), [f"{ACC}:8:", "got 2"]),
        (replace_line(GYRO, 9, b"0.1 zero 0.3\n"), [f"{GYRO}:9:", "expected a number, got 'zero'"]),
        (replace_line(GYRO, 9, b"0.1 \xff\xfe 0.3\n"), [f"{GYRO}:9:", "expected a number"]),
        (replace_line(GYRO, 9, b"0.1 nan 0.3\n"), [f"{GYRO}:9:", "finite", "nan"]),
        (replace_line(GYRO, 9, b"0.1 -inf 0.3\n"), [f"{GYRO}:9:", "finite", "-inf"]),
        (replace_line(GYRO, 9, b"0.1 1e999 0.3\n"), [f"{GYRO}:9:", "finite", "1e999"]),
        (replace_line(GYRO, 9, b"0.1,0.2,0.3\n"), [f"{GYRO}:9:", "expected 3 numbers, got 1"]),
        (put(ACC, b""), [ACC, "empty"]),
        (put(ACC, b" \n\n"), [ACC, "empty"]),
        (cut_rows(GYRO, 2000), [GYRO, "2170 rows", "2000"]),
        (both(cut_rows(ACC, 2000), cut_rows(GYRO, 2000)), [f"{SEGMENTS}:14:", "row 2160", "2000 rows"]),
        (both(cut_rows(ACC, 20), cut_rows(GYRO, 20)), [ACC, "at least 32 rows", "20"]),
        (remove(GYRO), [GYRO, "missing"]),
        (remove(SEGMENTS), [SEGMENTS, "missing"]),
        (remove("activity_labels.txt"), ["activity_labels.txt", "missing"]),
        (remove("Test/subject_id_test.txt"), ["Test/subject_id_test.txt", "missing"]),
        (put("Test/subject_id_test.txt", b"2\n3\n"), ["Test/subject_id_test.txt", "subject 2", "keep it in one"]),
        (put("Test/subject_id_test.txt", b"4\n"), [f"{SEGMENTS}:15:", "subject 3", "neither"]),
        (put("Test/subject_id_test.txt", b"three\n"), ["Test/subject_id_test.txt:1:", "'three'"]),
        (replace_line(SEGMENTS, 3, b"1 1 3 0 900\n"), [f"{SEGMENTS}:3:", "0 to 900"]),
        (replace_line(SEGMENTS, 3, b"1 1 3 900 800\n"), [f"{SEGMENTS}:3:", "900 to 800"]),
        (replace_line(SEGMENTS, 3, b"1 1 8 700 800\n"), [f"{SEGMENTS}:3:", "1 to 7, got 8"]),
        (replace_line(SEGMENTS, 3, b"1 1 0 700 800\n"), [f"{SEGMENTS}:3:", "1 to 7, got 0"]),
        (replace_line(SEGMENTS, 3, b"1 1 3 700.5 800\n"), [f"{SEGMENTS}:3:", "whole number", "700.5"]),
        (replace_line(SEGMENTS, 3, b"1 1 3 700 99999999999\n"), [f"{SEGMENTS}:3:", "column 5"]),
        (replace_line(SEGMENTS, 3, b"1 1 3 700\n"), [f"{SEGMENTS}:3:", "expected 5 numbers, got 4"]),
        (replace_line(SEGMENTS, 3, b"9 1 3 700 800\n"), ["RawData/acc_exp09_user01.txt", "missing"]),
        (replace_line(SEGMENTS, 2, b"\n1 1 2 311 2171\n"), [f"{SEGMENTS}:3:", "row 2171", "2170 rows"]),
        (cut_rows(SEGMENTS, 14), [SEGMENTS, "nothing labels RawData/acc_exp03_user03.txt"]),
        (put("activity_labels.txt", b"1 WALKING\n3 SITTING\n"), ["activity_labels.txt:2:", "'2 NAME'", "3 SITTING"]),
        (put("activity_labels.txt", b"1 WALKING\n2 WALKING\n"), ["activity_labels.txt:2:"]),
        (put("activity_labels.txt", b"\n"), ["activity_labels.txt", "got none"]),
    ],
)
def test_damage_is_one_error_that_names_file_and_line(
    tmp_path: Path, damage: Callable[[Files], None], expected: list[str], packed: bool
) -> None:
    files = hapt_files()
    damage(files)
    path = write_zip(tmp_path / "set.zip", files) if packed else write_folder(tmp_path / "set", files)
    cache = tmp_path / "cache"
    with pytest.raises(DataError) as caught:
        read(path, cache)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    for part in expected:
        assert part in message
    assert not cache.exists() or not list(cache.iterdir())


def test_a_class_without_training_windows_is_refused(tmp_path: Path) -> None:
    files = hapt_files()
    lines = files[SEGMENTS].decode().splitlines()
    kept = [line for line in lines if not line.startswith(("1 1 4 ", "2 2 4 "))]
    files[SEGMENTS] = "\n".join(kept).encode()
    with pytest.raises(DataError, match=r"class 3 \('SITTING'\) has no training window"):
        read(write_folder(tmp_path / "set", files), tmp_path / "cache")


def test_windows_longer_than_every_segment_are_refused(tmp_path: Path) -> None:
    path = write_folder(tmp_path / "set", hapt_files())
    with pytest.raises(DataError, match="no labelled segment is 301 steps long; use shorter windows"):
        read(path, tmp_path / "cache", SEGMENT_ROWS + 1)


@pytest.mark.parametrize(("steps", "stride", "name"), [(0, 64, "window_steps"), (128, 0, "window_stride")])
def test_windows_and_strides_have_at_least_one_step(tmp_path: Path, steps: int, stride: int, name: str) -> None:
    path = write_folder(tmp_path / "set", hapt_files())
    with pytest.raises(DataError, match=f"{name}: expected at least 1 step, got 0"):
        read(path, tmp_path / "cache", steps, stride)


def test_constant_readings_are_gravity_and_nothing_else(tmp_path: Path) -> None:
    files = hapt_files()
    rows = 7 * (SEGMENT_ROWS + 10)
    for subject in (1, 2, 3):
        files[f"RawData/acc_exp{subject:02d}_user{subject:02d}.txt"] = table(np.tile([0.6, 0.0, 0.8], (rows, 1)))
        files[f"RawData/gyro_exp{subject:02d}_user{subject:02d}.txt"] = table(np.tile([0.1, 0.2, 0.3], (rows, 1)))
    windows = read(write_folder(tmp_path / "set", files), tmp_path / "cache").windows()
    np.testing.assert_allclose(windows[..., 0:3], 0.0, atol=1e-6)
    np.testing.assert_allclose(windows[..., 3:6], np.broadcast_to([0.1, 0.2, 0.3], windows[..., 3:6].shape), rtol=1e-5)
    np.testing.assert_allclose(windows[..., 6:9], np.broadcast_to([0.6, 0.0, 0.8], windows[..., 6:9].shape), atol=1e-6)
