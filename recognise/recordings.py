"""Recordings in files: blocks of readings from a CSV, an .npz or HAPT's own text files, and windows from an .npz."""

import os
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from cluster.data.filters import SAMPLE_RATE_HZ
from cluster.data.npz_windows import DEFAULT_WINDOW_STEPS, read_windows
from cluster.data.recordings import Cutting, Recordings, silent
from cluster.data.table import parse_table
from cluster.errors import DataError, reason_of
from recognise import npz_recording
from recognise.lines import Block, Lines

STANDARD_INPUT = "-"
BLOCK_BYTES = 1 << 16
LARGEST_TABLE_BYTES = 1 << 28
"""Of one of HAPT's files, which is read whole: 50 hours."""
_HAPT = re.compile(r"(acc|gyro)(_exp\d+_user\d+\.txt)")


def is_windows(name: str) -> bool:
    """Whether the file holds windows that are cut already."""
    return name.lower().endswith(".npz") and not npz_recording.is_recording(name)


def windows_in(name: str) -> Recordings:
    """The windows of an .npz, as our reader takes it. Raises DataError."""
    return read_windows(Path(name), Cutting(DEFAULT_WINDOW_STEPS, DEFAULT_WINDOW_STEPS, 0), silent)


def blocks_of(name: str) -> Iterator[Block]:
    """Readings of a recording, in order, as they come: `-` is standard input. Raises DataError."""
    if name != STANDARD_INPUT and (found := _HAPT.fullmatch(Path(name).name)):
        yield _hapt(Path(name), found)
        return
    if name.lower().endswith(".npz"):
        yield from npz_recording.blocks(Path(name))
        return
    lines = Lines()
    with _descriptor(name) as descriptor:
        try:
            size, done = os.fstat(descriptor).st_size, 0
            # What is there is read at once: a live line waits for no other one.
            while content := os.read(descriptor, BLOCK_BYTES):
                done += len(content)
                yield replace(lines.take(content), share=min(1.0, done / size) if size else 0.0)
        except OSError as problem:
            raise DataError(f"{name}: cannot be read ({reason_of(problem)}); name a recording") from None
    yield lines.end()


@contextmanager
def _descriptor(name: str) -> Iterator[int]:
    if name == STANDARD_INPUT:
        yield sys.stdin.fileno()
        return
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
    except (OSError, ValueError) as problem:
        raise DataError(f"{name}: cannot be read ({reason_of(problem)}); name a recording") from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _hapt(path: Path, found: re.Match[str]) -> Block:
    """One of HAPT's recordings: three numbers a line in g or rad/s, at 50 Hz, with its companion beside it."""
    if found[1] != "acc":
        raise DataError(f"{path}: expected the acceleration, acc{found[2]}; its companion is found beside it")
    tables = []
    for each in (path, path.with_name(f"gyro{found[2]}")):
        try:
            about = each.stat()
            if not stat.S_ISREG(about.st_mode) or about.st_size > LARGEST_TABLE_BYTES:
                raise DataError(f"{each}: expected a file of up to {LARGEST_TABLE_BYTES:,} bytes; name a recording")
            tables.append(parse_table(each.read_bytes(), 3, str(each)))
        except OSError as problem:
            raise DataError(f"{each}: cannot be read ({reason_of(problem)}); restore it from the set") from None
    acceleration, rotation = tables
    if len(acceleration) != len(rotation):
        raise DataError(
            f"{path}: expected the {len(rotation)} rows of its companion, got {len(acceleration)}; restore both"
        )
    times = np.arange(len(acceleration)) / SAMPLE_RATE_HZ
    return Block(np.concatenate([times[:, np.newaxis], acceleration, rotation], axis=1), (), 1.0)
