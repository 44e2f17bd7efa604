"""What recordings hold, as `fab data show` shows it.

Counts that agree with the data, drawings, wrong lines.
"""

import json
import re
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.synthetic_hhar import write_hhar
from core.data import Dataset
from core.data.prepare import Data
from core.data.show import MOST_GROUPS, portrait_of, window_sections
from core.data.show.recording import named_lines
from core.logs.bars import MIB, bar
from core.web.sections import BLOCKS, PLAIN, sparkline, terminal_lines
from tests.core.data.desk import Desk, Show
from tests.core.data.given_examples import written
from tests.core.data.hhar_rows import NAME


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hhar") / NAME
    write_hhar(path, people=3, devices=2, seconds=2.0)
    return path


@pytest.fixture(scope="module")
def dataset(recorded: Path) -> Dataset:
    return Desk(recorded.parent).read(NAME, window_steps=100, window_stride=50)


def values(rows: list[dict[str, Any]], *keys: str) -> list[tuple[Any, ...]]:
    """The rows' values of these keys."""
    return [tuple(row[key] for key in keys) for row in rows]


def test_the_counts_are_those_of_the_data(dataset: Dataset) -> None:
    found = portrait_of(dataset)
    train = dataset.train_windows
    counts = [np.bincount(part, minlength=7) for part in np.split(dataset.classes(), [train])]
    rows = values(found["classes"], "label", "train", "test")
    assert rows == list(zip(dataset.labels, *counts, strict=True))
    assert values(found["groups"], "number", "name") == [(0, "a"), (1, "b"), (2, "c")]
    assert sum(row["examples"] for row in found["groups"]) == dataset.rows
    assert all(sum(row["by_class"]) == row["examples"] for row in found["groups"])
    assert sorted(values(found["groups"], "part")) == [("test",), ("train",), ("train",)]
    windows = np.asarray(dataset.windows()[:train], np.float64).reshape(-1, 3)
    figures = values(found["channels"], "mean", "deviation", "least", "most")
    expected = [windows.mean(0), windows.std(0), windows.min(0), windows.max(0)]
    np.testing.assert_allclose(np.transpose(figures), expected)
    assert "3 users (a, b, c), 2 devices" in found["note"]


def test_windows_are_drawn_from_the_training_rows_of_their_class(dataset: Dataset) -> None:
    drawn = portrait_of(dataset, windows_per_class=2)["windows"]
    assert [window["label"] for window in drawn] == np.repeat(dataset.labels, 2).tolist()
    for window in drawn:
        assert window["row"] < dataset.train_windows
        assert dataset.labels[int(dataset.classes()[window["row"]])] == window["label"]
        assert window["values"] == dataset.windows()[window["row"]].tolist()


def test_the_lines_have_everything_and_fit(dataset: Dataset) -> None:
    sections = list(window_sections(portrait_of(dataset)))
    text = list(terminal_lines(sections))
    assert any(re.match(r"class +train +test$", line) for line in text)
    assert any(re.match(r"0 a +(train|test) ", line) for line in text)
    drawn = [line for line in text if re.match(r"  [xyz] ", line)]
    assert len(drawn) == 3 * len(dataset.labels)
    assert max(map(len, drawn)) < 100
    assert "".join(terminal_lines(sections, blocks=False)).isascii()


@pytest.mark.parametrize(
    ("values", "shown"), [([0, 1, 2, 3], "▁▃▆█"), ([5, 5], "▁▁"), ([1, 0] * 64, "▁" * 64)]
)
def test_a_sparkline_goes_from_the_least_to_the_most(values: list[float], shown: str) -> None:
    assert sparkline(values, BLOCKS) == shown
    assert len(BLOCKS) == len(PLAIN)


def windows(train: int, test: int, **beside: Any) -> Data:
    """Windows of two classes in turn, those for training and those of the test."""
    x = np.zeros((train + test, 16, 3), np.float32)
    x[:, 0] = np.random.default_rng(0).normal(size=(train + test, 3))
    y = np.arange(train + test) % 2
    return Data(x[:train], y[:train], x[train:], y[train:], **beside)


def test_tables_and_regressions_have_no_windows(tmp_path: Path) -> None:
    x = np.arange(24, dtype=np.float32).reshape(12, 2)
    given = Data(x[:8], x[:8, 0] / 3, x[8:], x[8:, 0] / 3)
    found = portrait_of(written(given, tmp_path, "regression"))
    assert found["classes"] == found["groups"] == found["windows"] == []
    assert values(found["channels"], "name") == [("0",), ("1",)]
    assert list(terminal_lines(window_sections(found)))


def test_of_many_groups_the_first_are_shown_and_the_others_counted(tmp_path: Path) -> None:
    given = windows(300, 100, groups=list(range(300)))
    found = portrait_of(written(given, tmp_path, standardized=True))
    assert [row["number"] for row in found["groups"]] == list(range(MOST_GROUPS))
    assert found["groups_left_out"] == 300 - MOST_GROUPS
    assert f"and {300 - MOST_GROUPS} more" in list(terminal_lines(window_sections(found)))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user-cache"))


def test_the_command_shows_a_file_and_writes_a_page(
    recorded: Path, tmp_path: Path, show: Show, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core.logs.bars.time.monotonic", lambda: 0.0)
    out = tmp_path / "page.html"
    words = (recorded, "--window-steps=100")
    said = show(*words, f"--out={out}", '--options={"groups": "device"}')
    assert "nexus4_1" in said.out
    assert said.err == "", "what takes a moment needs no progress"
    assert "<h2>Windows</h2>" in out.read_text()
    found = json.loads(show(*words, "--json", "--each", "0").out)
    assert found["windows"] == []
    assert {row["name"] for row in found["groups"]} == {"a", "b", "c"}


def test_a_wrong_line_is_shown_with_its_neighbours(
    recorded: Path, tmp_path: Path, show: Show
) -> None:
    path = tmp_path / NAME
    rows = recorded.read_text().splitlines()[:200]
    rows[49] = rows[49].replace(rows[49].split(",")[3], "\x1b[31mhigh", 1)
    path.write_text("\n".join(rows) + "\n")
    said = show(path, code=2).err.splitlines()
    assert said[0].startswith(f"{path}:50: x: expected a number, got ")
    assert [line.split(":")[0] for line in said[1:]] == ["  48", "  49", "> 50", "  51", "  52"]
    assert "\x1b" not in "".join(said)


def test_a_line_as_long_as_its_file_is_cut_and_takes_no_more_memory(tmp_path: Path) -> None:
    path = tmp_path / "long"
    path.write_text("a\n" + "b" * 40_000_000 + "\nc\n")
    tracemalloc.start()
    try:
        shown = list(named_lines(f"{path}:3: x"))
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()
    assert shown == ["  1: a", f"  2: {'b' * 160}...", "> 3: c"]


def test_progress_without_a_terminal_is_a_line_a_tenth(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 1000, 3))
    monkeypatch.setattr("core.logs.bars.time.monotonic", lambda: float(next(clock)))
    with bar() as report:
        for done in range(0, 101, 5):
            report("fetching", done, 100)
        report("reading", 250 * MIB, 0)
    said = capsys.readouterr().err.splitlines()
    assert said == [*(f"fetching: {tenth}0 %" for tenth in range(1, 11)), "reading: 250 MiB"]
    with bar(quiet=True) as report:
        report("fetching", 100, 100)
    assert capsys.readouterr().err == ""
