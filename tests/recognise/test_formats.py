"""Recordings as phone apps write them get the windows of the plain file."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from core.data.described.known_formats import FOLDER, described
from core.errors import DataError
from core.plausible import STANDARD_GRAVITY
from recognise.stream import Settings
from recognise.whole import LongRecording
from tests.core.data.described.movement import zipped
from tests.recognise.readings import Readings, walk, windows_of

EPOCH_NS = 1_780_000_000_000_000_000
DEGREES = 180 / np.pi
Columns = Mapping[str, np.ndarray]


def table(columns: Columns, separator: str = ",", head: str | None = None) -> bytes:
    """Text with a line of names, or with `head` in its place."""
    lines = [separator.join(columns) if head is None else head]
    lines += [separator.join(map(str, row)) for row in zip(*columns.values(), strict=True)]
    return "\n".join(lines).encode()


def vector(name: str, values: np.ndarray, axes: str = "xyz") -> Columns:
    return {name.format(axis): values[:, at] for at, axis in enumerate(axes)}


def nanoseconds(readings: Readings) -> np.ndarray:
    return EPOCH_NS + np.rint(readings.times * 1e9).astype(np.int64)


def parts(readings: Readings) -> Mapping[str, np.ndarray]:
    """What Sensor Logger splits the readings into; gravity is any part of the acceleration."""
    gravity = np.tile([0.0, 0.1, 0.9], (len(readings.times), 1))
    return {
        "Accelerometer": (readings.acceleration - gravity) * STANDARD_GRAVITY,
        "Gravity": gravity * STANDARD_GRAVITY,
        "Gyroscope": readings.rotation,
    }


def sensor_logger(readings: Readings) -> bytes:
    times = nanoseconds(readings)
    files = {
        f"{name}.csv": table({"time": times, **vector("{}", values)})
        for name, values in parts(readings).items()
    }
    return zipped({**files, "Metadata.csv": b"version\n3\n"})


def sensor_logger_json(readings: Readings) -> bytes:
    found = [
        {"sensor": name, "time": str(time), **dict(zip("xyz", map(str, row), strict=True))}
        for name, values in parts(readings).items()
        for time, row in zip(nanoseconds(readings), values, strict=True)
    ]
    return json.dumps(found).encode()


def phyphox(readings: Readings) -> bytes:
    acceleration = vector("Acceleration {} (m/s^2)", readings.acceleration * STANDARD_GRAVITY)
    rotation = vector("Gyroscope {} (rad/s)", readings.rotation)
    return zipped(
        {
            "Accelerometer.csv": table({"Time (s)": readings.times, **acceleration}),
            "Gyroscope.csv": table({"Time (s)": readings.times, **rotation}),
        }
    )


def androsensor(readings: Readings) -> bytes:
    acceleration = readings.acceleration * STANDARD_GRAVITY
    columns = {
        **vector("ACCELEROMETER {} (m/s²)", acceleration, "XYZ"),
        **vector("GYROSCOPE {} (rad/s)", readings.rotation, "XYZ"),
        "Time since start in ms ": np.rint(readings.times * 1e3).astype(int),
    }
    return b"sep=;\n" + table(columns, ";")


def sensorlog(readings: Readings) -> bytes:
    return table(
        {
            **vector("accelerometerAcceleration{}(G)", readings.acceleration, "XYZ"),
            **vector("motionRotationRate{}(rad/s)", readings.rotation, "XYZ"),
            "motionTimestamp_sinceReboot(s)": readings.times,
        }
    )


def physics_toolbox(readings: Readings) -> bytes:
    acceleration = vector("gF{}", readings.acceleration)
    return table({"time": readings.times, **acceleration, **vector("w{}", readings.rotation)})


def serial(readings: Readings) -> bytes:
    columns = {
        "t": np.rint(readings.times * 1e3).astype(int),
        **vector("a{}", readings.acceleration),
        **vector("g{}", readings.rotation * DEGREES),
    }
    return table(columns, head="7,0.1")


APPS: Mapping[str, tuple[str, Callable[[Readings], bytes]]] = {
    "sensor-logger": ("walk.zip", sensor_logger),
    "sensor-logger-json": ("walk.json", sensor_logger_json),
    "phyphox": ("walk.zip", phyphox),
    "androsensor": ("walk.csv", androsensor),
    "sensorlog": ("walk.csv", sensorlog),
    "physics-toolbox": ("walk.csv", physics_toolbox),
    "serial": ("walk.log", serial),
}
ROUNDED = 1e-4
"""Of a value of some g or rad/s: what the units' factors and the filters behind them change."""


@pytest.mark.parametrize("name", APPS)
def test_an_apps_file_has_the_windows_of_the_plain_one(name: str, tmp_path: Path) -> None:
    file, write = APPS[name]
    readings = walk(900)
    (tmp_path / file).write_bytes(write(readings))
    plain = tmp_path / "plain.csv"
    np.savetxt(plain, np.column_stack([*vars(readings).values()]), delimiter=",", fmt="%.17g")
    wanted = windows_of(list(LongRecording(str(plain), Settings(), "causal").items()))
    recording = LongRecording(str(tmp_path / file), Settings(), "causal", name)
    found = windows_of(list(recording.items()))
    assert len(found) == len(wanted) > 5
    # A log of a serial line begins within a line.
    assert recording.progress.note == ("left out: 1 bad lines" if name == "serial" else "")
    for one, other in zip(found, wanted, strict=True):
        assert one.channels == pytest.approx(other.channels, abs=ROUNDED)


@pytest.mark.parametrize(
    ("name", "files", "said"),
    [
        ("edge-impulse-json", ["a.json"], "the format has not a rotation; record with that sensor"),
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
    with pytest.raises(DataError) as caught:
        LongRecording(str(tmp_path / "own"), Settings(), "causal", name)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert described(name, FOLDER).files
