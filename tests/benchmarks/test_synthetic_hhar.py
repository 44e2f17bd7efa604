"""Invented recordings in the format of HHAR."""

import tracemalloc
from pathlib import Path

import pytest

from benchmarks.synthetic_hhar import write_hhar
from tests.core.data.desk import Desk
from tests.core.data.hhar_rows import NAME


@pytest.mark.long
def test_memory_is_that_of_some_rows(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    write_hhar(desk.folder / NAME, people=4, devices=2, seconds=4.0)
    tracemalloc.start()
    try:
        dataset = desk.read(NAME, window_steps=200, window_stride=5)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert dataset.rows * dataset.inputs.example_bytes > 2 * peak
