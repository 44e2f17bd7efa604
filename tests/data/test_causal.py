"""`jobs.train.data.filters: causal`: prepared windows are what the stream core cuts from the same recording."""

import json
from pathlib import Path

import numpy as np
import pytest

from cluster.data import Dataset, find_source, prepare
from cluster.data.publish import publishable
from cluster.errors import DataError
from recognise.stream import Settings, Stream, Window
from tests.data.makers import SEGMENT_ROWS, hapt_files, uci_har_files, write_folder

LABELS = "RawData/labels.txt"


def made(path: Path, cache: Path, filters: str, **asked: int) -> Dataset:
    return prepare(find_source(str(path), {}, path, path), cache=cache, options={"filters": filters}, **asked)  # type: ignore[arg-type]


def test_prepared_windows_are_those_that_a_stream_cuts(tmp_path: Path) -> None:
    files = hapt_files()
    dataset = made(write_folder(tmp_path / "set", files), tmp_path / "cache", "causal", window_stride=32)
    prepared, row = dataset.windows(), 0
    for line in files[LABELS].decode().splitlines():
        experiment, user, activity, first, last = map(int, line.split())
        if activity > len(dataset.labels):  # the change of posture
            continue
        readings = [
            np.loadtxt(files[f"RawData/{sensor}_exp{experiment:02d}_user{user:02d}.txt"].decode().splitlines())
            for sensor in ("acc", "gyro")
        ]
        # A hop of 1 has the window of every step; a segment's windows are some of them.
        stream = Stream(Settings(hop=1))
        found = stream.push(np.arange(last) / 50.0, readings[0][:last], readings[1][:last])
        for begin in range(first - 1, last - 127, 32):
            window = found[begin]
            assert isinstance(window, Window)
            np.testing.assert_array_equal(window.channels, prepared[row])
            row += 1
    assert row == dataset.rows > 0


def test_two_way_and_causal_are_two_sets_and_each_says_which_it_is(tmp_path: Path) -> None:
    path = write_folder(tmp_path / "set", hapt_files())
    one, other = (made(path, tmp_path / "cache", filters) for filters in ("two-way", "causal"))
    assert (one.filters, other.filters) == ("two-way", "causal")
    assert one.folder != other.folder
    assert one.sha256 != other.sha256
    assert one.rows == other.rows
    assert made(path, tmp_path / "cache", "causal").folder == other.folder
    assert prepare(find_source(str(path), {}, path, path), cache=tmp_path / "cache").folder == one.folder


def test_invented_recordings_know_it_too(tmp_path: Path) -> None:
    source = find_source("synthetic", {}, tmp_path, tmp_path)
    sets = [prepare(source, cache=tmp_path, options={"filters": filters}) for filters in ("two-way", "causal")]
    assert [dataset.filters for dataset in sets] == ["two-way", "causal"]
    assert sets[0].sha256 != sets[1].sha256


def test_windows_that_are_filtered_already_are_refused_in_one_line(tmp_path: Path) -> None:
    uci = write_folder(tmp_path / "uci", uci_har_files())
    x, y = np.zeros((8, 16, 2), np.float32), np.arange(8) % 2
    np.savez(tmp_path / "mine.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    for path, said in ((uci, "comes filtered two-way, got causal"), (tmp_path / "mine.npz", "kind npz are not filter")):
        with pytest.raises(DataError, match=said) as caught:
            made(path, tmp_path / "cache", "causal")
        assert "\n" not in str(caught.value)
    assert made(uci, tmp_path / "cache", "two-way").filters == "two-way"
    assert made(tmp_path / "mine.npz", tmp_path / "cache", "two-way").filters is None


def test_a_published_set_of_other_filters_is_refused(tmp_path: Path) -> None:
    path = write_folder(tmp_path / "set", hapt_files())
    published = Path(publishable(str(path), 128, 64, 0, tmp_path / "cache")["folder"])
    with pytest.raises(DataError, match="prepared with filters two-way, expected causal as in the job"):
        made(published, tmp_path / "cache", "causal")
    manifest = published / "manifest.json"
    fields = json.loads(manifest.read_text())
    del fields["preparation"]["filters"]
    manifest.write_text(json.dumps(fields))
    with pytest.raises(DataError, match="does not say that it was prepared with filters causal"):
        made(published, tmp_path / "cache", "causal")
    assert made(published, tmp_path / "cache", "two-way").filters is None
    fields["preparation"]["filters"] = "sideways"
    manifest.write_text(json.dumps(fields))
    with pytest.raises(DataError, match="filters 'sideways'"):
        made(published, tmp_path / "cache", "two-way")


def test_recordings_are_longer_than_a_window() -> None:
    assert SEGMENT_ROWS > 128 + 32, "or the test above would compare one window a segment"
