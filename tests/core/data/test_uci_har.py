"""The reader of the classic nine inertial-signal files."""

import math
import re
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from core.data.filters import CHANNELS
from core.data.recordings import no_number
from core.data.uci_har import rows_of
from core.ground.errors import DataError
from tests.core.data.desk import Desk, damaged, has, wrong
from tests.core.data.makers import uci_har_files, write_zip
from tests.tables import table


def test_folder_and_zip_give_the_published_windows_in_channel_order(desk: Desk) -> None:
    files = uci_har_files()
    dataset = desk.read("UCI HAR Dataset", files)
    write_zip(desk.folder / "set.zip", files, prefix="UCI HAR Dataset/")
    has(
        dataset,
        name="uci-har",
        sha256=desk.read("set.zip").sha256,
        train_windows=8,
        test_windows=6,
        classes=[0, 1, 2, 3, 4, 5, 0, 1, 5, 4, 3, 2, 1, 0],
        subjects=[1] * 4 + [2] * 4 + [3] * 6,
    )
    for index, channel in enumerate(CHANNELS):
        tables = [
            files[f"{part}/Inertial Signals/{channel}_{part}.txt"] for part in ("train", "test")
        ]
        expected = np.loadtxt(b"".join(tables).decode().splitlines())
        np.testing.assert_allclose(dataset.windows()[:, :, index], expected, rtol=1e-6)


@wrong("uci-har")
def test_damage_is_one_error_that_names_the_file(desk: Desk, row: dict[str, Any]) -> None:
    desk.refuses(row["says"], "set", damaged(uci_har_files(), row))


def test_windows_of_another_length_cannot_be_cut_from_this_set(desk: Desk) -> None:
    said = "comes cut into windows of 128 steps, got 64"
    desk.refuses(said, "set", uci_har_files(), window_steps=64)


def test_a_word_that_looks_like_a_number_has_a_reason() -> None:
    for word, why in table("core/data/tables", "no numbers").items():
        assert str(no_number(word)).startswith(why)


@given(
    content=st.text("0123456789.-+einfa#_ \t\r\n\0\x0b\x85\xff", max_size=80).map(
        lambda text: text.encode("latin-1")
    )
)
def test_any_content_is_rows_of_that_width_or_one_error(content: bytes) -> None:
    try:
        rows = list(rows_of(content, 2, "file"))
    except DataError as problem:
        accepted = re.match(r"file(:\d+)?: expected ", str(problem)) is not None
    else:
        accepted = all(len(values) == 2 and all(map(math.isfinite, values)) for _, values in rows)
    assert accepted
