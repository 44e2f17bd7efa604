"""What recordings hold, as `fab data show` shows it: counts that agree with the data, drawings, wrong lines."""

import json
import re
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from cluster.data import Dataset, Source, find_source, prepare
from cluster.data.examples import Data, batches_of, write_examples
from cluster.data.show import __main__ as command
from cluster.data.show.page import page
from cluster.data.show.portrait import MOST_GROUPS, portrait_of
from cluster.data.show.terminal import BLOCKS, PLAIN, lines, sparkline
from cluster.data.show.wrong import named_lines
from cluster.data.synthetic_hhar import write_hhar
from cluster.logs import bars


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hhar") / "Phones_accelerometer.csv"
    write_hhar(path, people=3, devices=2, seconds=2.0)
    return path


@pytest.fixture(scope="module")
def dataset(recorded: Path, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    source = Source("hhar", recorded, "asked")
    return prepare(source, window_steps=100, window_stride=50, cache=tmp_path_factory.mktemp("cache"))


def test_the_counts_are_those_of_the_data(dataset: Dataset) -> None:
    found = portrait_of(dataset)
    classes, train = dataset.classes(), dataset.train_windows
    for number, row in enumerate(found.classes):
        assert row.label == dataset.labels[number]
        assert (row.train, row.test) == ((classes[:train] == number).sum(), (classes[train:] == number).sum())
    assert [(row.number, row.name) for row in found.groups] == [(0, "a"), (1, "b"), (2, "c")]
    assert sum(row.examples for row in found.groups) == dataset.rows
    assert all(sum(row.by_class) == row.examples for row in found.groups)
    assert sorted(row.part for row in found.groups) == ["test", "train", "train"]
    windows = np.asarray(dataset.windows()[:train], np.float64).reshape(-1, 3)
    for at, channel in enumerate(found.channels):
        assert channel.mean == pytest.approx(windows[:, at].mean())
        assert channel.deviation == pytest.approx(windows[:, at].std())
        assert (channel.least, channel.most) == (windows[:, at].min(), windows[:, at].max())
    assert "3 users (a, b, c), 2 devices" in found.note


def test_windows_are_drawn_from_the_training_rows_of_their_class(dataset: Dataset) -> None:
    found = portrait_of(dataset, each=2)
    assert [window.label for window in found.windows] == [label for label in dataset.labels for _ in range(2)]
    for window in found.windows:
        assert window.row < dataset.train_windows
        assert dataset.labels[int(dataset.classes()[window.row])] == window.label
        np.testing.assert_array_equal(np.array(window.values, np.float32), dataset.windows()[window.row])


def test_the_lines_have_everything_and_fit(dataset: Dataset) -> None:
    text = list(lines(portrait_of(dataset)))
    assert any(re.match(r"class +train +test$", line) for line in text)
    assert any(re.match(r"0 a +(train|test) ", line) for line in text)
    drawn = [line for line in text if re.match(r"  [xyz] ", line)]
    assert len(drawn) == 3 * len(dataset.labels)
    assert all(len(line) < 100 for line in drawn)
    assert all(line.isascii() for line in lines(portrait_of(dataset), blocks=False))


@pytest.mark.parametrize(("values", "shown"), [([0, 1, 2, 3], "▁▃▆█"), ([5, 5], "▁▁"), ([1, 0] * 64, "▁" * 64)])
def test_a_sparkline_goes_from_the_least_to_the_most(values: list[float], shown: str) -> None:
    assert sparkline(values, BLOCKS) == shown
    assert len(BLOCKS) == len(PLAIN)


def test_the_page_escapes_what_the_recordings_say(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(12, 16, 3)).astype(np.float32)
    labels = ["<script>alert(1)</script>", "b"]
    batches, names = batches_of(Data(x[:8], [0, 1] * 4, x[8:], [0, 1] * 2, groups=[0, 0, 1, 1] * 2, labels=labels))
    made = write_examples(batches, tmp_path, name="x", source="<b>", labels=names, standardized=True)
    text = page(portrait_of(made))
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert text.count("<svg") == 2
    assert "default-src 'none'" in text


def test_tables_and_regressions_have_no_windows(tmp_path: Path) -> None:
    x = np.arange(24, dtype=np.float32).reshape(12, 2)
    batches, names = batches_of(Data(x[:8], x[:8, 0] / 3, x[8:], x[8:, 0] / 3), "regression")
    made = write_examples(batches, tmp_path, name="x", source="x", task="regression", labels=names)
    found = portrait_of(made)
    assert (found.classes, found.groups, found.windows) == ((), (), ())
    assert [channel.name for channel in found.channels] == ["0", "1"]
    assert list(lines(found))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user-cache"))


def test_the_command_shows_a_file_and_writes_a_page(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "page.html"
    words = [str(recorded), "--window-steps=100", "--out", str(out), "--options", '{"groups": "device"}']
    assert command.main(words) == 0
    said = capsys.readouterr()
    assert "nexus4_1" in said.out
    assert said.err == "", "what takes a moment needs no progress"
    assert "<h2>Windows</h2>" in out.read_text()
    assert command.main([*words[:2], "--json", "--each", "0"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["windows"] == []
    assert {row["name"] for row in found["groups"]} == {"a", "b", "c"}


def test_a_wrong_line_is_shown_with_its_neighbours(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "Phones_accelerometer.csv"
    rows = recorded.read_text().splitlines()[:200]
    rows[49] = rows[49].replace(rows[49].split(",")[3], "\x1b[31mhigh", 1)
    path.write_text("\n".join(rows) + "\n")
    assert command.main([str(path)]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith(f"{path}:50: x: expected a finite number, got ")
    assert [line.split(":")[0] for line in said[1:]] == ["  48", "  49", "> 50", "  51", "  52"]
    assert "\x1b" not in "".join(said)


def test_an_error_without_a_line_shows_none(tmp_path: Path) -> None:
    assert list(named_lines("no such file or folder")) == []
    assert list(named_lines(f"{tmp_path}:3: x")) == []
    (tmp_path / "long").write_text("a\n" + "b" * 1000 + "\n")
    assert [len(line) < 200 for line in named_lines(f"{tmp_path / 'long'}:2: x")] == [True, True]


def test_a_line_as_long_as_its_file_takes_no_more_memory(tmp_path: Path) -> None:
    path = tmp_path / "long"
    path.write_text("a\n" + "b" * 40_000_000 + "\nc\n")
    tracemalloc.start()
    try:
        shown = list(named_lines(f"{path}:3: x"))
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()
    assert [shown[0], shown[2]] == ["  1: a", "> 3: c"]
    assert shown[1] == f"  2: {'b' * 160}..."


def test_of_many_groups_the_first_are_shown_and_the_others_counted(tmp_path: Path) -> None:
    groups = list(range(300))
    x = np.zeros((400, 16, 3), np.float32)
    x[:, 0] = np.random.default_rng(0).normal(size=(400, 3))
    batches, names = batches_of(Data(x[:300], [0, 1] * 150, x[300:], [0, 1] * 50, groups=groups))
    found = portrait_of(write_examples(batches, tmp_path, name="x", source="x", labels=names, standardized=True))
    assert [row.number for row in found.groups] == list(range(MOST_GROUPS))
    assert found.groups_left_out == 300 - MOST_GROUPS
    assert f"and {300 - MOST_GROUPS} more" in list(lines(found))


def test_a_search_finds_a_fetched_set_in_the_cache(recorded: Path, tmp_path: Path) -> None:
    place = tmp_path / "user-cache" / "pscluster" / "hhar"
    place.mkdir(parents=True)
    (place / recorded.name).write_bytes(recorded.read_bytes())
    found = find_source(None, {}, tmp_path / "project", place.parent)
    assert (found.kind, found.path) == ("hhar", place / recorded.name)


def test_progress_without_a_terminal_is_a_line_a_tenth(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 1000, 3))
    monkeypatch.setattr("cluster.logs.bars.time.monotonic", lambda: float(next(clock)))
    with bars.bar() as report:
        for done in range(0, 101, 5):
            report("fetching", done, 100)
        report("reading", 250 * bars.MIB, 0)
    said = capsys.readouterr().err.splitlines()
    assert said == [*(f"fetching: {tenth}0 %" for tenth in range(1, 11)), "reading: 250 MiB"]
    with bars.bar(quiet=True) as report:
        report("fetching", 100, 100)
    assert capsys.readouterr().err == ""
