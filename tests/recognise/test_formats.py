"""Recordings as phone apps write them get the windows of the plain file."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from core.data.described.known_formats import FOLDER, described
from core.ground.errors import DataError
from core.ground.plausible import STANDARD_GRAVITY
from recognise.first_look import looked_at
from recognise.recordings import blocks_of
from recognise.stream import Settings, Stream
from recognise.stream.stream import MOST_READINGS
from tests.core.data.described.movement import zipped
from tests.recognise.readings import Found, Readings, kinds, same, walk, windows_of
from tests.recognise.wrong_recordings import WRONG_FILES, Change

EPOCH_NS = 1_780_000_000_000_000_000
DEGREES = 180 / np.pi
Columns = Mapping[str, np.ndarray]


def table(columns: Columns, head: str | None = None) -> bytes:
    """Text with a line of names, or with `head` in its place."""
    lines = [",".join(columns) if head is None else head]
    lines += [",".join(map(str, row)) for row in zip(*columns.values(), strict=True)]
    return "\n".join(lines).encode()


def vector(name: str, values: np.ndarray) -> Columns:
    return {name.format(axis): values[:, at] for at, axis in enumerate("xyz")}


def sensor_logger(readings: Readings) -> bytes:
    """The archive that Sensor Logger shares; gravity is any part of the acceleration."""
    times = EPOCH_NS + np.rint(readings.times * 1e9).astype(np.int64)
    gravity = np.tile([0.0, 0.1, 0.9], (len(times), 1))
    parts = {
        "Accelerometer": (readings.acceleration - gravity) * STANDARD_GRAVITY,
        "Gravity": gravity * STANDARD_GRAVITY,
        "Gyroscope": readings.rotation,
    }
    files = {
        f"{name}.csv": table({"time": times, **vector("{}", values)})
        for name, values in parts.items()
    }
    return zipped({**files, "Metadata.csv": b"version\n3\n"})


def serial(readings: Readings) -> bytes:
    columns = {
        "t": np.rint(readings.times * 1e3).astype(int),
        **vector("a{}", readings.acceleration),
        **vector("g{}", readings.rotation * DEGREES),
    }
    return table(columns, head="7,0.1")


ROUNDED = 1e-4
"""Of a value of some g or rad/s: what the units' factors and the filters behind them change."""


def found_in(file: Path, format_name: str | None = None) -> tuple[Found, str]:
    """Windows and faults of a file, and what its format allowed to leave out."""
    settings = Settings()
    looked_at(str(file), settings, format_name)
    stream = Stream(settings)
    found: Found = []
    note = ""
    for block in blocks_of(str(file), format_name, settings.signals):
        note = block.note or note
        for start in range(0, len(block.readings), MOST_READINGS):
            rows = block.readings[start : start + MOST_READINGS]
            found += stream.push_values(rows[:, 0], rows[:, 1:])
    return found, note


def as_csv(file: Path, readings: Readings) -> Path:
    np.savetxt(file, np.column_stack([*vars(readings).values()]), delimiter=",", fmt="%.17g")
    return file


@pytest.mark.parametrize(
    ("name", "file", "write"),
    [("sensor-logger", "walk.zip", sensor_logger), ("serial", "walk.log", serial)],
)
def test_an_apps_file_has_the_windows_of_the_plain_one(
    name: str, file: str, write: Callable[[Readings], bytes], tmp_path: Path
) -> None:
    readings = walk(900)
    (tmp_path / file).write_bytes(write(readings))
    wanted = windows_of(found_in(as_csv(tmp_path / "plain.csv", readings))[0])
    everything, note = found_in(tmp_path / file, name)
    found = windows_of(everything)
    assert len(found) == len(wanted) > 5
    # A log of a serial line begins within a line.
    assert note == ("left out: 1 bad lines" if name == "serial" else "")
    for one, other in zip(found, wanted, strict=True):
        assert one.channels == pytest.approx(other.channels, abs=ROUNDED)


def test_an_npz_and_a_csv_have_the_same_windows_and_no_window_spans_a_gap(tmp_path: Path) -> None:
    readings = walk(4000).rows(np.r_[0:1500, 1700:4000])
    np.savez(tmp_path / "day.npz", **vars(readings))
    found, _ = found_in(tmp_path / "day.npz")
    assert same(found, found_in(as_csv(tmp_path / "day.csv", readings))[0])
    before = range(0, 1500 - 127, 64)
    after = range(0, 2300 - 127, 64)
    assert kinds(found) == ["window"] * len(before) + ["gap"] + ["window"] * len(after)


@pytest.mark.parametrize(("change", "said"), WRONG_FILES)
def test_a_file_that_gets_no_label_is_refused_at_its_first_look(
    tmp_path: Path, change: Change, said: str
) -> None:
    refused(as_npz(tmp_path / "day.npz", vars(change(walk(700)))), said)


def test_what_is_no_recording_is_one_line(tmp_path: Path) -> None:
    arrays = vars(walk(500))
    (tmp_path / "words.csv").write_text("a diary\n" * 9)
    (tmp_path / "empty.csv").write_text("")
    refused(tmp_path / "words.csv", "line 1: expected the names")
    refused(tmp_path / "empty.csv", "got 0 readings")
    short = {**arrays, "rotation": arrays["rotation"][:9]}
    refused(as_npz(tmp_path / "a.npz", short), "rotation: expected shape (500, 3), got (9, 3)")
    del short["rotation"]
    refused(as_npz(tmp_path / "b.npz", short), "rotation is missing")


def as_npz(file: Path, arrays: Mapping[str, np.ndarray]) -> Path:
    np.savez(file, **arrays)  # type: ignore[arg-type]
    return file


def refused(file: Path, said: str, format_name: str | None = None) -> None:
    with pytest.raises(DataError) as caught:
        looked_at(str(file), Settings(), format_name)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "files", "said"),
    [
        ("edge-impulse-json", ["a.json"], "the format lacks a rotation; record with that sensor"),
        ("phyphox", ["walk.zip"], "no file of the sensor 'Gyroscope', got Accelerometer"),
        ("sensorlog", ["a.csv", "b.csv"], "expected one recording, got 2: own/a.csv, own/b.csv"),
    ],
)
def test_what_cannot_be_labelled_is_one_line(
    tmp_path: Path, name: str, files: list[str], said: str
) -> None:
    (tmp_path / "own").mkdir()
    for file in files:
        (tmp_path / "own" / file).write_bytes(zipped({"Accelerometer.csv": b"Time (s)\n"}))
    refused(tmp_path / "own", said, name)
    assert described(name, FOLDER).files
