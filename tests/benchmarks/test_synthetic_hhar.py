"""Invented recordings in the format of HHAR."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from benchmarks.synthetic_hhar import ACTIVITIES, NULL, main, write_hhar
from tests.core.data.desk import Desk
from tests.core.data.hhar_rows import CUT, NAME


def test_the_invented_recordings_are_in_the_format_and_seeded(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    paths = [desk.folder / name for name in ("a.csv", "b.csv")]
    rows = [write_hhar(path, people=3, devices=3, seconds=1.0, seed=5) for path in paths]
    content = paths[0].read_bytes()
    assert rows[0] == content.count(b"\n") - 1 == 3 * 7 * 2 * 2 * (100 + 100 + 75)
    assert paths[1].read_bytes() == content
    dataset = desk.read("a.csv", **CUT)
    labels = (*(activity.name for activity in ACTIVITIES), NULL)
    assert (dataset.labels, dataset.held_out.groups) == (labels, ("a", "b", "c"))
    gravity = np.linalg.norm(np.asarray(dataset.windows()).mean(axis=1), axis=1)
    assert 9.0 < np.median(gravity) < 10.6
    devices = desk.read("a.csv", **CUT, groups="device").held_out.groups
    assert devices == ("nexus4_1", "nexus4_2", "s3_1")


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


def test_the_generator_refuses_impossible_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["x", str(tmp_path / "a.csv"), "--people", "0"])
    assert main() == 2
    assert "expected 1 to 26 people" in capsys.readouterr().err
    assert not (tmp_path / "a.csv").exists()
