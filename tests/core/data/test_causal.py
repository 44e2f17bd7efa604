"""`jobs.train.data.filters: causal`: windows are what the stream core cuts.

Both are of the same recording.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.data.publish import publishable
from recognise.stream import Settings, Stream, Window
from tests.core.data.desk import Desk, edit_manifest
from tests.core.data.makers import SEGMENT_ROWS, Files, hapt_files, uci_har_files
from tests.core.data.npz_files import cut_arrays

TWO_WAYS = ("two-way", "causal")


def readings(files: Files, experiment: int, last: int) -> list[Any]:
    """Acceleration and rotation of a recording up to this row."""
    names = [f"RawData/{name}_exp{experiment:02d}_user{experiment:02d}.txt" for name in SENSORS]
    return [np.loadtxt(files[name].decode().splitlines())[:last] for name in names]


SENSORS = ("acc", "gyro")


def test_prepared_windows_are_those_that_a_stream_cuts(desk: Desk) -> None:
    assert SEGMENT_ROWS > 128 + 32, "or this would compare one window a segment"
    files = hapt_files()
    dataset = desk.read("set", files, filters="causal", window_stride=32)
    row = 0
    lines = files["RawData/labels.txt"].decode().splitlines()
    for line in sorted(lines, key=lambda line: line.split()[1] == "2"):  # the test is last
        experiment, _, activity, first, last = map(int, line.split())
        if activity > len(dataset.labels):  # the change of posture
            continue
        # A hop of 1 has the window of every step; a segment's windows are some of them.
        stream = Stream(Settings(hop=1))
        found = stream.push_values(
            np.arange(last) / 50.0, np.hstack(readings(files, experiment, last))
        )
        for begin in range(first - 1, last - 127, 32):
            window = found[begin]
            assert isinstance(window, Window)
            np.testing.assert_array_equal(window.channels, dataset.windows()[row])
            row += 1
    assert row == dataset.rows > 0


@pytest.mark.parametrize("name", ["set", "synthetic"])
def test_two_way_and_causal_are_two_sets_and_each_says_which_it_is(desk: Desk, name: str) -> None:
    if name == "set":
        desk.write(name, hapt_files())
    one, other = (desk.read(name, filters=filters) for filters in TWO_WAYS)
    assert (one.signals.filters, other.signals.filters) == TWO_WAYS
    assert one.folder != other.folder
    assert one.sha256 != other.sha256
    assert one.rows == other.rows
    assert desk.read(name, filters="causal").folder == other.folder
    assert desk.read(name).folder == one.folder


@pytest.mark.parametrize(
    ("name", "content", "said", "filters"),
    [
        ("uci", uci_har_files(), "comes filtered two-way, got causal", "two-way"),
        ("mine.npz", cut_arrays(), "kind npz are not filter", None),
    ],
)
def test_windows_that_are_filtered_already_are_refused_in_one_line(
    desk: Desk, name: str, content: Any, said: str, filters: str | None
) -> None:
    desk.refuses(said, name, content, filters="causal")
    assert desk.read(name, filters="two-way").signals.filters == filters


def test_a_published_set_of_other_filters_is_refused(desk: Desk) -> None:
    path = desk.write("set", hapt_files())
    published = Path(publishable(str(path), 128, 64, 0, desk.cache)["folder"])
    said = "prepared with filters two-way, expected causal as in the job"
    desk.refuses(said, published, filters="causal")
    edit_manifest(published, preparation={"window_steps": 128, "window_stride": 64})
    said = "does not say that it was prepared with filters causal"
    desk.refuses(said, published, filters="causal")
    assert desk.read(published, filters="two-way").signals.filters is None
    edit_manifest(published, preparation={"filters": "sideways"})
    desk.refuses("filters 'sideways'", published, filters="two-way")
