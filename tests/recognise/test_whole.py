"""A long recording: refusals, gaps, equal windows from every format, batches, memory."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.data.filters import nine_channels
from core.errors import DataError
from recognise.batches import PackedWindows, ResultRow, WindowPacker
from recognise.stream import Settings, Window
from recognise.whole import LongRecording
from tests.recognise.readings import Found, Readings, heard, kinds, same, walk, windows_of
from tests.recognise.wrong_recordings import WRONG, WRONG_FILES, Change


def as_csv(path: Path, readings: Readings) -> str:
    np.savetxt(path, np.column_stack([*vars(readings).values()]), delimiter=",", fmt="%.17g")
    return str(path)


def as_npz(path: Path, readings: Readings) -> str:
    np.savez(path, **vars(readings))
    return str(path)


def recording(name: str, direction: str = "two-way", **asked: str) -> LongRecording:
    return LongRecording(name, Settings(**asked), direction)  # type: ignore[arg-type]


def found_in(name: str, direction: str = "two-way", **asked: str) -> Found:
    return list(recording(name, direction, **asked).items())


@pytest.mark.parametrize("direction", ["two-way", "causal"])
def test_an_npz_and_a_csv_have_the_same_windows_and_no_window_spans_a_gap(
    tmp_path: Path, direction: str
) -> None:
    readings = walk(4000).rows(np.r_[0:1500, 1700:4000])
    found = found_in(as_npz(tmp_path / "day.npz", readings), direction)
    assert same(found, found_in(as_csv(tmp_path / "day.csv", readings), direction))
    before = range(0, 1500 - 127, 64)
    after = range(0, 2300 - 127, 64)
    assert kinds(found) == ["window"] * len(before) + ["gap"] + ["window"] * len(after)
    if direction == "causal":
        assert same(found, heard(Settings(), readings, [4096]))
        return
    windows = iter(windows_of(found))
    for part, starts in ((slice(0, 1500), before), (slice(1500, None), after)):
        own = readings.rows(part)
        whole = nine_channels(own.acceleration, own.rotation)
        for start, window in zip(starts, windows, strict=False):
            np.testing.assert_array_equal(window.channels, whole[start : start + 128])
            assert window.begins == (start == 0)
            assert window.centre == pytest.approx(own.times[start + 127] - 1.28)


def test_a_reading_that_is_not_finite_is_dropped_and_lines_that_are_none_are_counted(
    tmp_path: Path,
) -> None:
    day = tmp_path / "day.csv"
    lines = Path(as_csv(day, walk(1000))).read_text().splitlines()
    lines[500] = "10.0,nan,0,1,0,0,0"
    lines[600] = "what is this"
    day.write_text("\n".join(lines))
    read = recording(str(day))
    assert set(kinds(list(read.items()))) == {"window", "bad_value"}
    progress = read.progress
    assert (progress.readings, progress.bad_lines, progress.share) == (999, 1, 1.0)
    assert "601: expected seven numbers" in progress.shown[0]


def test_a_faster_sensor_is_low_passed_to_the_rate_of_the_model(tmp_path: Path) -> None:
    fast = recording(as_npz(tmp_path / "fast.npz", walk(4000, hz=200.0)))
    assert fast.settings.source_hz == pytest.approx(200.0)
    assert kinds(list(fast.items())) == ["window"] * len(range(0, 1000 - 127, 64))


def refused(name: str, words: str) -> None:
    with pytest.raises(DataError) as caught:
        recording(name)
    assert words in str(caught.value), name
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("change", "words"), [*WRONG, *WRONG_FILES])
def test_a_recording_that_gets_no_label_is_refused_at_its_first_look(
    tmp_path: Path, change: Change, words: str
) -> None:
    refused(as_npz(tmp_path / "day.npz", change(walk(700))), words)


def test_what_is_no_recording_is_one_line(tmp_path: Path) -> None:
    arrays = vars(walk(500))
    (tmp_path / "words.csv").write_text("a diary\n" * 9)
    (tmp_path / "empty.csv").write_text("")
    np.savez(tmp_path / "windows.npz", x_train=np.zeros((2, 128, 9)))
    np.savez(tmp_path / "half.npz", times=arrays["times"], acceleration=arrays["acceleration"])
    np.savez(tmp_path / "other.npz", **{**arrays, "rotation": arrays["rotation"][:9]})
    for name, words in (
        ("words.csv", "line 1: expected the names"),
        ("empty.csv", "got 0 readings"),
        ("windows.npz", "got an .npz without times"),
        ("half.npz", "rotation is missing"),
        ("other.npz", "rotation: expected shape (500, 3), got (9, 3)"),
        ("nowhere.csv", "No such file"),
        (".", "got another kind"),
    ):
        refused(str(tmp_path / name), words)


def test_readings_in_another_unit_are_labelled_where_it_is_said(tmp_path: Path) -> None:
    name = as_npz(tmp_path / "day.npz", walk(500).scaled("acceleration", 9.80665))
    assert set(kinds(found_in(name, acceleration_unit="m/s2"))) == {"window"}


def test_memory_does_not_grow_with_the_recording(tmp_path: Path) -> None:
    peaks = []
    for count in (60_000, 240_000):
        items = recording(as_npz(tmp_path / f"{count}.npz", walk(count))).items()
        tracemalloc.start()
        try:
            assert all(isinstance(item, Window) for item in items)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[1] < 1.25 * peaks[0]


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([8, 16, 20]),
    st.lists(st.integers(1, 400), min_size=1, max_size=6),
    st.integers(1, 9),
)
def test_a_batch_has_every_window_whole(hop: int, stretches: list[int], most: int) -> None:
    random = np.random.default_rng(1)
    steps = 16
    expected = []
    packer = WindowPacker(most, steps, hop, 9)
    batches = list[PackedWindows]()
    for stretch in stretches:
        samples = random.normal(size=(stretch, 9)).astype(np.float32)
        packer.note(ResultRow(0.0, "gap"))
        for start in range(0, stretch - steps + 1, hop):
            expected.append(samples[start : start + steps])
            batches += packer.add(Window(start + 1.0, float(start), expected[-1], start == 0))
    batches.append(packer.taken())
    cut = []
    for batch in batches:
        cut += [batch.samples[at : at + steps] for at in batch.starts[: batch.windows]]
        assert batch.samples.shape == (steps + (most - 1) * min(hop, steps), 9)
        assert batch.starts.shape == (most,)
        assert batch.windows == sum(not row.note for row in batch.rows) <= most
    assert np.array_equal(cut, expected)
    assert sum(bool(row.note) for batch in batches for row in batch.rows) == len(stretches)
