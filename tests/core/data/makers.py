"""Small sets in the published layouts, as files by name.

A test can damage one and write the rest.
"""

import io
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np

from core.data.filters import CHANNELS

Files = dict[str, bytes]

LABELS = b"""1 WALKING
2 WALKING_UPSTAIRS
3 WALKING_DOWNSTAIRS
4 SITTING
5 STANDING
6 LAYING
7 STAND_TO_SIT
"""
GRAVITY = np.array([0.0, 0.0, 1.0])
SEGMENT_ROWS = 300
"""Rows of each labelled segment: three windows of 128 steps at stride 64."""


def table(values: np.ndarray) -> bytes:
    text = io.StringIO()
    np.savetxt(text, values, fmt="%.17g")
    return text.getvalue().encode()


def hapt_files() -> Files:
    """Return three people (1 and 3 train, 2 tests), one recording each.

    Each has seven segments with a gap of ten rows.
    """
    return dict(_hapt_files())


@cache
def _hapt_files() -> Files:
    random = np.random.default_rng(5)
    files: Files = {
        "activity_labels.txt": LABELS,
        "README.txt": b"Jos\xe9, in Latin-1\r\n",
    }
    lines = []
    for subject in (1, 2, 3):
        rows = 7 * (SEGMENT_ROWS + 10)
        for sensor in ("acc", "gyro"):
            readings = random.normal(0, 1, size=(rows, 3)) + (sensor == "acc") * GRAVITY
            files[f"RawData/{sensor}_exp{subject:02d}_user{subject:02d}.txt"] = table(readings)
        for activity in range(1, 8):
            first = (activity - 1) * (SEGMENT_ROWS + 10) + 1
            lines.append(f"{subject} {subject} {activity} {first} {first + SEGMENT_ROWS - 1}\n")
    files["RawData/labels.txt"] = "".join(lines).encode()
    return files


def uci_har_files() -> Files:
    """Eight training windows of subject 1 and 2, six test windows of subject 3."""
    random = np.random.default_rng(6)
    files: Files = {"activity_labels.txt": b"".join(LABELS.splitlines(keepends=True)[:6])}
    for part, classes, subjects in (
        ("train", (1, 2, 3, 4, 5, 6, 1, 2), (1, 1, 1, 1, 2, 2, 2, 2)),
        ("test", (6, 5, 4, 3, 2, 1), (3,) * 6),
    ):
        files[f"{part}/y_{part}.txt"] = table(np.array(classes))
        files[f"{part}/subject_{part}.txt"] = table(np.array(subjects))
        for channel in CHANNELS:
            signal = random.normal(0, 1, size=(len(classes), 128)) + (channel == "total_acc_z")
            files[f"{part}/Inertial Signals/{channel}_{part}.txt"] = table(signal)
    return files


def write_folder(folder: Path, files: Mapping[str, bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def write_zip(path: Path, files: Mapping[str, bytes], prefix: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(prefix + name, content)
    return path
