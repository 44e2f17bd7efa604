"""Recordings in files: CSV, .npz or HAPT's own text files; also windows from an .npz."""

import os
import re
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from io import FileIO
from pathlib import Path

import numpy as np

from core.data.described.description import RecordingFormat
from core.data.described.known_formats import described
from core.data.described.members import members_of
from core.data.described.session_rows import readings
from core.data.described.text_bytes import Damage
from core.data.filters import NINE_CHANNELS, SAMPLE_RATE_HZ
from core.data.npz import read_windows
from core.data.npz_arrays import ArchivedArray, open_archive
from core.data.recordings import Recordings
from core.data.signals import Signals
from core.ground.errors import DataError, reason_of
from recognise.lines import Block, ReadingParser

ARRAYS = ("times", "acceleration", "rotation")
_AT_ONCE = 16_384


def is_npz_recording(name: str) -> bool:
    """Return whether the file is an .npz of a recording, not one of windows."""
    try:
        with open_archive(Path(name)) as archive:
            return ARRAYS[0] in archive.files
    except (OSError, DataError):
        return False


def _checked(path: Path, archive: zipfile.ZipFile, name: str) -> ArchivedArray:
    try:
        return ArchivedArray(path, archive, name).checked()
    except DataError as problem:
        if name != ARRAYS[0]:
            raise
        raise DataError(
            f"{problem}, in seconds: of datetimes (t - t[0]) / np.timedelta64(1, 's')"
        ) from None


def npz_blocks(path: Path) -> Iterator[Block]:
    """Return the readings in order. Raises DataError naming the array and the remedy."""
    with open_archive(path) as archive:
        missing = [name for name in ARRAYS if name not in archive.files]
        if missing:
            raise DataError(
                f"{path}: {missing[0]} is missing; save it with "
                f"numpy.savez_compressed({', '.join(f'{name}=...' for name in ARRAYS)})"
            )
        arrays = [_checked(path, archive.zip, name) for name in ARRAYS]
        count = (*arrays[0].shape, 0)[0]
        for name, array, shape in zip(
            ARRAYS, arrays, ((count,), (count, 3), (count, 3)), strict=True
        ):
            if array.shape != shape:
                raise DataError(
                    f"{path}: {name}: expected shape {shape}, got {array.shape}; save a row a"
                    " reading"
                )
        done = 0
        for times, *values in zip(*(array.blocks(_AT_ONCE) for array in arrays), strict=True):
            done += len(times)
            rows = np.concatenate([times[:, np.newaxis], *values], axis=1, dtype=np.float64)
            yield Block(rows, (), done / count)


STANDARD_INPUT = "-"
BLOCK_BYTES = 1 << 16
_HAPT = re.compile(r"(acc|gyro)(_exp\d+_user\d+\.txt)")

_HAPT_FORMAT = {
    "text": {"separator": "space", "columns": 3},
    "time": {"hertz": SAMPLE_RATE_HZ},
    "channels": tuple(
        {"name": sensor, "columns": ("1", "2", "3"), "unit": unit, "sensor": sensor}
        for sensor, unit in (("acc", "g"), ("gyro", "rad/s"))
    ),
    "label": {"column": "none"},
    "person": {"name": "none"},
}
"""The format of `formats/hapt.yaml`: a machine that only recognises has no YAML."""


def is_windows(name: str) -> bool:
    """Return whether the file holds windows that are cut already."""
    return name.lower().endswith(".npz") and not is_npz_recording(name)


def windows_in(name: str) -> Recordings:
    """Return the windows of an .npz. Raises DataError."""
    return read_windows(Path(name))


def blocks_of(
    name: str, format_name: str | None = None, model: Signals = NINE_CHANNELS
) -> Iterator[Block]:
    """Return the readings of a recording in order, as they come; `-` is standard input.

    With the name or file of a format they are what the model takes, in its order and units. Raises
    DataError.
    """
    if format_name is not None:
        form = described(format_name, Path(name))
        damage = Damage()
        block = Block(np.empty((0, 1)), ())
        for rows in readings(Path(name), form, model, damage):
            block = Block(rows, ())
            yield block
        if left_out := damage.note():
            yield replace(block, readings=block.readings[:0], note=f"left out: {left_out}")
        return
    for block in _blocks(name):
        yield block
        if block.refusal:
            raise DataError(f"{name}: {block.refusal}")


def _blocks(name: str) -> Iterator[Block]:
    if name != STANDARD_INPUT and (match := _HAPT.fullmatch(Path(name).name)):
        yield _hapt(Path(name), match)
        return
    if name.lower().endswith(".npz"):
        yield from npz_blocks(Path(name))
        return
    lines = ReadingParser()
    try:
        with _opened(name) as file:
            size = os.fstat(file.fileno()).st_size
            done = 0
            # What is there is read at once: a live line waits for no other one.
            while content := file.read(BLOCK_BYTES):
                done += len(content)
                share = min(1.0, done / size) if size else 0.0
                yield replace(lines.take(content), share=share)
    except (OSError, ValueError) as problem:
        raise DataError(
            f"{name}: cannot be read ({reason_of(problem)}); name a recording"
        ) from None
    yield lines.end()


def _opened(name: str) -> FileIO:
    if name == STANDARD_INPUT:
        return open(sys.stdin.fileno(), "rb", buffering=0, closefd=False)
    return open(name, "rb", buffering=0)


def _hapt(path: Path, match: re.Match[str]) -> Block:
    """Return one of HAPT's recordings, whose companion lies beside it, at 50 Hz."""
    if match[1] != "acc":
        raise DataError(
            f"{path}: expected the acceleration, acc{match[2]}; its companion is found beside it"
        )
    pair = (path, path.with_name(f"gyro{match[2]}"))
    files = [member for sensor_path in pair for member in members_of(sensor_path)]
    form = RecordingFormat.model_validate({**_HAPT_FORMAT, "files": f"{{sensor}}{match[2]}"})
    rows = list(readings(path, form, NINE_CHANNELS, Damage(), files))
    return Block(np.concatenate(rows), (), 1.0)
