"""The kind `hapt`, which its format reads, on a small set that each test damages in its own way."""

import re
from typing import Any

import numpy as np
import pytest

from tests.core.data.desk import INPUTS, Desk, damaged, has, refused, wrong
from tests.core.data.makers import SEGMENT_ROWS, hapt_files, table, write_zip

SEGMENTS = "RawData/labels.txt"
EACH_CLASS = [*np.repeat(np.arange(6), 3).tolist()]
"""The classes of one person's windows."""


def test_zip_prefixed_zip_nested_zip_and_folder_give_the_same_windows(desk: Desk) -> None:
    files = hapt_files()
    first = desk.read("folder", files)
    inner = write_zip(desk.folder / "prefixed.zip", files, prefix="HAPT Data Set/")
    nested = {"HAPT Data Set.zip": inner.read_bytes(), "names.txt": b"about"}
    others = [
        desk.read("plain.zip", files),
        desk.read("prefixed.zip"),
        desk.read("nested.zip", nested),
    ]
    assert {dataset.sha256 for dataset in others} == {first.sha256}
    assert len(desk.cached()) == 4
    has(
        first,
        train_windows=2 * 6 * 3,
        test_windows=6 * 3,
        classes=EACH_CLASS * 3,
        subjects=[1] * 18 + [3] * 18 + [2] * 18,
    )


@pytest.mark.parametrize(("window_steps", "window_stride", "per_segment"), INPUTS["segments"])
def test_first_and_last_row_of_a_segment_belong_to_it(
    desk: Desk, window_steps: int, window_stride: int, per_segment: int
) -> None:
    dataset = desk.read("set", hapt_files(), window_steps=window_steps, window_stride=window_stride)
    has(dataset, rows=3 * 6 * per_segment, window_steps=window_steps)


@wrong("hapt")
def test_damage_is_one_error_that_names_file_and_line(desk: Desk, row: dict[str, Any]) -> None:
    desk.refuses(row["says"], "set.zip", damaged(hapt_files(), row))


@pytest.mark.parametrize(
    ("left_out", "said"),
    [
        (rb"\d \d [2-6]", "at least 2 classes, got 'WALKING' alone"),
        (rb"[13] [13] 4", "'SITTING' has windows of the users 02 alone, who are held out"),
    ],
)
def test_too_few_classes_are_refused(desk: Desk, left_out: bytes, said: str) -> None:
    files = hapt_files()
    lines = files[SEGMENTS].splitlines(keepends=True)
    files[SEGMENTS] = b"".join(line for line in lines if not re.match(left_out, line))
    desk.refuses(said, "set", files)


def test_windows_longer_than_every_segment_are_refused(desk: Desk) -> None:
    said = "expected a stretch of 301 samples of one session and label, the longest has 300"
    desk.refuses(said, "set", hapt_files(), window_steps=SEGMENT_ROWS + 1)


@pytest.mark.parametrize("name", ["window_steps", "window_stride"])
def test_windows_and_strides_have_at_least_one_step(desk: Desk, name: str) -> None:
    with refused(f"{name}: expected at least 1 step, got 0"):
        desk.read("set", hapt_files(), **{name: 0})


def test_constant_readings_are_gravity_and_nothing_else(desk: Desk) -> None:
    files = hapt_files()
    steady = {"acc": [0.6, 0.0, 0.8], "gyro": [0.1, 0.2, 0.3]}
    for name in files:
        sensor = name.removeprefix("RawData/").partition("_exp")[0]
        if sensor in steady:
            files[name] = table(np.tile(steady[sensor], (7 * (SEGMENT_ROWS + 10), 1)))
    windows = desk.read("set", files).windows()
    expected = np.broadcast_to([0, 0, 0, *steady["gyro"], *steady["acc"]], windows.shape)
    np.testing.assert_allclose(windows, expected, atol=1e-6)


def test_other_test_people_than_the_published_ones_are_refused(desk: Desk) -> None:
    files = {**hapt_files(), "Test/subject_id_test.txt": b"3\n3\n"}
    desk.refuses("subject_id_test.txt: expected the people ... got [3]; describe", "folder", files)
    people = "".join(f"{person}\n" for person in (2, 4, 9, 10, 12, 13, 18, 20, 24))
    desk.read("published", {**files, "Test/subject_id_test.txt": people.encode()})
