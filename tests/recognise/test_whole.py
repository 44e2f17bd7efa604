"""A long recording: what is refused, gaps, equal windows from every format, batches that share samples, memory."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.data.filters import nine_channels
from cluster.errors import DataError
from recognise.batches import Batch, Batches, Row
from recognise.stream import Fault, Settings, Window
from recognise.whole import LongRecording
from tests.recognise.readings import Readings, heard, kinds, same, walk


def as_csv(path: Path, readings: Readings) -> str:
    rows = np.concatenate([readings.times[:, None], readings.acceleration, readings.rotation], axis=1)
    np.savetxt(path, rows, delimiter=",", fmt="%.17g")
    return str(path)


def as_npz(path: Path, readings: Readings) -> str:
    np.savez(path, times=readings.times, acceleration=readings.acceleration, rotation=readings.rotation)
    return str(path)


def found_in(name: str, direction: str = "two-way", asked: Settings = Settings()) -> list[Window | Fault]:  # noqa: B008
    return list(LongRecording(name, asked, direction).items())


def with_a_gap(count: int = 4000) -> Readings:
    kept = np.r_[0:1500, 1700:count]
    return walk(count).rows(kept)


@pytest.mark.parametrize("direction", ["two-way", "causal"])
def test_an_npz_and_a_csv_have_the_same_windows_and_no_window_spans_a_gap(tmp_path: Path, direction: str) -> None:
    readings = with_a_gap()
    found = found_in(as_npz(tmp_path / "day.npz", readings), direction)
    assert same(found, found_in(as_csv(tmp_path / "day.csv", readings), direction))
    first, second = len(range(0, 1500 - 127, 64)), len(range(0, 2300 - 127, 64))
    assert kinds(found) == ["window"] * first + ["gap"] + ["window"] * second
    if direction == "causal":
        assert same(found, heard(Settings(), readings, [4096]))
        return
    for part, windows in ((slice(0, 1500), found[:first]), (slice(1500, None), found[first + 1 :])):
        own = readings.rows(part)
        whole = nine_channels(own.acceleration, own.rotation)
        for number, window in enumerate(windows):
            assert isinstance(window, Window)
            np.testing.assert_array_equal(window.channels, whole[number * 64 : number * 64 + 128])
            assert window.begins == (number == 0)
            assert window.centre == pytest.approx(own.times[number * 64 + 127] - 1.28)


def test_a_reading_that_is_not_finite_is_dropped_and_lines_that_are_none_are_counted(tmp_path: Path) -> None:
    name = as_csv(tmp_path / "day.csv", walk(1000))
    lines = Path(name).read_text().splitlines()
    lines[500] = "10.0,nan,0,1,0,0,0"
    lines[600] = "what is this"
    Path(name).write_text("\n".join(lines))
    recording = LongRecording(name, Settings(), "two-way")
    assert set(kinds(list(recording.items()))) == {"window", "bad_value"}
    assert (recording.progress.readings, recording.progress.bad_lines) == (999, 1)
    assert "601: expected seven numbers" in recording.progress.shown[0]
    assert recording.progress.share == 1.0


def test_a_faster_sensor_is_low_passed_to_the_rate_of_the_model(tmp_path: Path) -> None:
    recording = LongRecording(as_npz(tmp_path / "fast.npz", walk(4000, hz=200.0)), Settings(), "two-way")
    assert recording.settings.source_hz == pytest.approx(200.0)
    assert kinds(list(recording.items())) == ["window"] * len(range(0, 1000 - 127, 64))


def test_what_cannot_be_labelled_is_one_line(tmp_path: Path) -> None:
    slow, good = walk(500, hz=10.0), walk(500)
    nothing = Readings(good.times, np.full((500, 3), np.nan), good.rotation)
    (tmp_path / "words.csv").write_text("a diary\n" * 9)
    (tmp_path / "empty.csv").write_text("")
    np.savez(tmp_path / "windows.npz", x_train=np.zeros((2, 128, 9)))
    np.savez(tmp_path / "half.npz", times=good.times, acceleration=good.acceleration)
    np.savez(tmp_path / "other.npz", times=good.times, acceleration=good.acceleration, rotation=good.rotation[:9])
    cases = {
        as_npz(tmp_path / "slow.npz", slow): "got 10 readings a second; are the times in seconds?",
        as_npz(tmp_path / "ms.npz", Readings(good.times * 1000, good.acceleration, good.rotation)): "in seconds?",
        as_npz(tmp_path / "still.npz", Readings(good.times * 0, good.acceleration, good.rotation)): "do not rise",
        as_npz(tmp_path / "nan.npz", nothing): "got 0 readings without a NaN",
        as_npz(tmp_path / "unit.npz", Readings(good.times, good.acceleration * 9.8, good.rotation)): "give --accel",
        str(tmp_path / "words.csv"): "got expected seven numbers",
        str(tmp_path / "empty.csv"): "got 0 readings",
        str(tmp_path / "windows.npz"): "got an .npz without times",
        str(tmp_path / "half.npz"): "rotation is missing",
        str(tmp_path / "other.npz"): "rotation: expected shape (500, 3), got (9, 3)",
        str(tmp_path / "nowhere.csv"): "No such file",
        str(tmp_path): "got another kind",
    }
    for name, words in cases.items():
        with pytest.raises(DataError) as caught:
            LongRecording(name, Settings(), "two-way")
        assert words in str(caught.value), name
        assert "\n" not in str(caught.value)
    metres = LongRecording(str(tmp_path / "unit.npz"), Settings(acceleration_unit="m/s2"), "two-way")
    assert set(kinds(list(metres.items()))) == {"window"}


def peak_of(name: str) -> int:
    recording = LongRecording(name, Settings(), "two-way")
    tracemalloc.start()
    try:
        for _ in recording.items():
            pass
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_the_recording(tmp_path: Path) -> None:
    short, long = (as_npz(tmp_path / f"{count}.npz", walk(count)) for count in (100_000, 400_000))
    assert peak_of(long) < 1.25 * peak_of(short)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([8, 16, 20]), st.lists(st.integers(1, 400), min_size=1, max_size=6), st.integers(1, 9))
def test_a_batch_has_every_window_whole(hop: int, stretches: list[int], most: int) -> None:
    random, steps = np.random.default_rng(1), 16
    expected, batches, found = [], Batches(most, steps, hop, 9), list[Batch]()
    for stretch in stretches:
        samples = random.normal(size=(stretch, 9)).astype(np.float32)
        batches.note(Row(0.0, "gap"))
        for start in range(0, stretch - steps + 1, hop):
            window = Window(start + 1.0, float(start), samples[start : start + steps], start == 0)
            found += batches.add(window)
            expected.append(window.channels)
    found.append(batches.taken())
    assert sum(batch.windows for batch in found) == len(expected)
    assert sum(bool(row.note) for batch in found for row in batch.rows) == len(stretches)
    cut = [batch.samples[start : start + steps] for batch in found for start in batch.starts[: batch.windows]]
    for channels, again in zip(expected, cut, strict=True):
        np.testing.assert_array_equal(channels, again)
    for batch in found:
        assert batch.samples.shape == (steps + (most - 1) * min(hop, steps), 9)
        assert batch.starts.shape == (most,)
        assert batch.windows == sum(not row.note for row in batch.rows) <= most
