"""Recordings in files: CSV, .npz or HAPT's own text files; also windows from an .npz."""

import os
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import FileIO
from pathlib import Path

import numpy as np

from core.data.described.known_formats import described
from core.data.described.readings import readings
from core.data.described.text_rows import Damage
from core.data.filters import NINE_CHANNELS, SAMPLE_RATE_HZ
from core.data.npz_windows import DEFAULT_WINDOW_STEPS, read_windows
from core.data.recordings import Cutting, Recordings, silent
from core.data.signals import Signals
from core.data.table import parse_table
from core.errors import DataError, reason_of
from recognise import npz_recording
from recognise.lines import Block, ReadingParser

STANDARD_INPUT = "-"
BLOCK_BYTES = 1 << 16
LARGEST_TABLE_BYTES = 1 << 28
"""One of HAPT's files is read whole; so many bytes are 50 hours."""
_HAPT = re.compile(r"(acc|gyro)(_exp\d+_user\d+\.txt)")


def is_windows(name: str) -> bool:
    """Return whether the file holds windows that are cut already."""
    return name.lower().endswith(".npz") and not npz_recording.is_recording(name)


def windows_in(name: str) -> Recordings:
    """Return the windows of an .npz. Raises DataError."""
    return read_windows(Path(name), Cutting(DEFAULT_WINDOW_STEPS, DEFAULT_WINDOW_STEPS, 0), silent)


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
    if name != STANDARD_INPUT and (found := _HAPT.fullmatch(Path(name).name)):
        yield _hapt(Path(name), found)
        return
    if name.lower().endswith(".npz"):
        yield from npz_recording.blocks(Path(name))
        return
    lines = ReadingParser()
    with _readable(name, "name a recording"), _opened(name) as file:
        size = os.fstat(file.fileno()).st_size
        done = 0
        # What is there is read at once: a live line waits for no other one.
        while content := file.read(BLOCK_BYTES):
            done += len(content)
            share = min(1.0, done / size) if size else 0.0
            yield replace(lines.take(content), share=share)
    yield lines.end()


def _opened(name: str) -> FileIO:
    if name == STANDARD_INPUT:
        return open(sys.stdin.fileno(), "rb", buffering=0, closefd=False)
    return open(name, "rb", buffering=0)


@contextmanager
def _readable(name: object, remedy: str) -> Iterator[None]:
    """Raise DataError for what cannot be read within the block."""
    try:
        yield
    except (OSError, ValueError) as problem:
        raise DataError(f"{name}: cannot be read ({reason_of(problem)}); {remedy}") from None


def _hapt(path: Path, found: re.Match[str]) -> Block:
    """Return one of HAPT's recordings, whose companion lies beside it.

    Each has three numbers a line in g or rad/s, at 50 Hz.
    """
    if found[1] != "acc":
        raise DataError(
            f"{path}: expected the acceleration, acc{found[2]}; its companion is found beside it"
        )
    tables = []
    for each in (path, path.with_name(f"gyro{found[2]}")):
        with _readable(each, "restore it from the set"):
            about = each.stat()
            if not stat.S_ISREG(about.st_mode) or about.st_size > LARGEST_TABLE_BYTES:
                raise DataError(
                    f"{each}: expected a file of up to {LARGEST_TABLE_BYTES:,} bytes; name a"
                    " recording"
                )
            tables.append(parse_table(each.read_bytes(), 3, str(each)))
    acceleration, rotation = tables
    if len(acceleration) != len(rotation):
        raise DataError(
            f"{path}: expected the {len(rotation)} rows of its companion, got {len(acceleration)};"
            " restore both"
        )
    times = np.arange(len(acceleration)) / SAMPLE_RATE_HZ
    return Block(np.concatenate([times[:, np.newaxis], acceleration, rotation], axis=1), (), 1.0)
