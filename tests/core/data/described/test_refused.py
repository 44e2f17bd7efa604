"""What a description or a recording has wrong is said in one line, with the remedy."""

from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

from core.data import prepare
from core.data.described.known_formats import described
from core.data.filters import CHANNELS, NINE_UNITS, channels_by
from core.data.source import DESCRIBED, Source, find_source
from core.ground.errors import DataError
from tests.core.data.described.movement import (
    AXES,
    DESCRIBED_SO,
    EVERYONE,
    NAMES,
    Form,
    objects,
    one_file,
    put,
    windows_of,
    zipped,
)
from tests.core.data.desk import refused, says
from tests.tables import table

ROWS: list[dict[str, Any]] = table("core/data/described/refused")


def made(row: dict[str, Any], folder: Path) -> Path:
    """The recordings of one row."""
    of = {
        name: ("next of", cycle((f"-{word}", word)))
        if name == row.get("alternating")
        else ("is", word)
        for name, word in row.get("of", {}).items()
    }
    if "factor" in row:
        column, factor = row["factor"]
        of[column] = ("times", factor)
    form = Form(
        names=row.get("names", NAMES),
        of=of,
        separator=row.get("separator", ","),
        quoted=row.get("quoted", False),
        comma=row.get("commas", False),
    )
    lines = form.bytes_of(EVERYONE).splitlines()
    for key in ("replace", "also"):
        if key in row:
            number, line = row[key]
            lines[number - 1] = line.encode()
    said = {"files": "r.csv", **DESCRIBED_SO, **row.get("format", {})}
    kept = {name: value for name, value in said.items() if value is not None}
    return put(folder, {"r.csv": b"\n".join(lines) + b"\n"}, kept)


@pytest.mark.parametrize("row", [pytest.param(row, id=row["says"]) for row in ROWS])
def test_a_mistake_is_one_line_with_its_remedy(row: dict[str, Any], tmp_path: Path) -> None:
    folder = made(row, tmp_path / "own")
    with refused(row["says"]) as caught:
        windows_of(folder, **row.get("options", {}))
    assert str(folder) in str(caught.value)


def test_unknown_formats_and_recordings_that_are_not_named(tmp_path: Path) -> None:
    with refused("jobs.train.data.format: unknown format 'pamap'; did you mean `pamap2`?"):
        described("pamap", tmp_path)
    with refused("no.yaml: no such file - name a file"):
        described(str(tmp_path / "no.yaml"), tmp_path)
    own = tmp_path / "own.yaml"
    for content, said in (("a: [", "own.yaml:1: not valid YAML"), ("- 1", "expected keys such as")):
        own.write_text(content, encoding="utf-8")
        with refused(said):
            described(str(own), tmp_path)
    with refused("format: pamap2 describes recordings, and none are named; name them with --data"):
        find_source(None, {}, tmp_path, tmp_path, "pamap2")


def test_a_format_of_ones_own_builds_on_a_known_one(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("like: wisdm-1.1\nperson: {name: me}\n", encoding="utf-8")
    found = described(str(own), tmp_path)
    assert (found.person.name, found.time.hertz) == ("me", 20)


def test_archives_in_archives_have_an_end(tmp_path: Path) -> None:
    deep = zipped({"r.csv": b"x"})
    for _ in range(4):
        deep = zipped({"a.zip": deep})
    folder = one_file(tmp_path / "own", deep, "x.zip")
    with refused("archives in more than 3 others; unpack them"):
        windows_of(folder)


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_a_share_of_damaged_lines_is_counted_and_bounded(share: float, tmp_path: Path) -> None:
    damaged = 10
    lines = Form().bytes_of(EVERYONE).splitlines()
    for number in range(20, 20 + damaged):
        lines[number] = b"?"
    folder = one_file(tmp_path / "own", b"\n".join(lines))
    most = damaged / len(EVERYONE) * share
    if share < 1.0:
        with refused("r.csv:21: ... 10 of 480 lines are no readings"):
            windows_of(folder, bad_lines=most)
    else:
        assert "10 bad lines" in windows_of(folder, bad_lines=most).held_out.note


def test_faults_of_time_are_counted_as_a_stream_counts_them(tmp_path: Path) -> None:
    rows = [row for row in EVERYONE if row["person"] == "anna"]
    others = [row for row in EVERYONE if row["person"] != "anna"]
    jumped = [*rows[:30], rows[29], rows[25], *rows[30:60], *rows[100:130], *rows[10:30]]
    content = Form().bytes_of([*jumped, *others])
    note = windows_of(one_file(tmp_path / "own", content)).held_out.note
    says(note, "1 clock_jump, 1 doubled, 1 gap, 1 late")
    late = Form().bytes_of([*rows[:60], *rows[100:], *rows[60:100], *others])
    with refused("in order of time 2 of its parts would follow ... sort its readings by time"):
        windows_of(one_file(tmp_path / "late", late))


def test_windows_of_which_most_samples_have_a_label(tmp_path: Path) -> None:
    folder = one_file(tmp_path / "own")

    # 160 samples are 9 windows of 32 at stride 16; the fifth spans both labels, 16 to 16.
    for share in (1.0, 0.51):
        assert windows_of(folder, label_share=share).rows == 3 * 8
    other = prepare(
        Source(DESCRIBED, folder, ""),
        window_steps=50,
        window_stride=25,
        cache=tmp_path / "cache",
        options={"label_share": 0.9},
    )
    # Windows begin at 0, 25, 50 (30 of 50 are rest), 75 (45 of 50 are walk) and 100.
    assert other.classes().tolist() == [0, 0, 1, 1] * 3


def test_a_folder_that_describes_itself_needs_no_flag(tmp_path: Path) -> None:
    folder = one_file(tmp_path / "own")
    assert find_source(str(folder), {}, tmp_path, tmp_path).kind == DESCRIBED
    (folder / "format.yaml").unlink()
    with pytest.raises(DataError):
        find_source(str(folder), {}, tmp_path, tmp_path)


def test_the_nine_channels_are_those_of_a_plain_filter(tmp_path: Path) -> None:
    """Bit for bit what the reader of HAPT makes of the same readings, in both directions."""
    folder = one_file(tmp_path / "own")
    for filters in ("two-way", "causal"):
        found = windows_of(folder, nine_channels=True, filters=filters)
        assert (found.signals.channels, found.signals.units) == (CHANNELS, NINE_UNITS)
        assert (found.signals.sampling_hz, found.signals.filters) == (50.0, filters)
        rows = [row for row in EVERYONE if row["person"] == "anna"]
        values = np.array([[row[axis] for axis in AXES] for row in rows])
        nine = channels_by(filters, values[:, :3], values[:, 3:])
        expected = sliding_window_view(nine[:80], 32, axis=0)[::16].transpose(0, 2, 1)
        assert found.windows()[:4].tobytes() == expected.tobytes()


def test_a_damaged_line_of_json_is_counted_like_one_of_text(tmp_path: Path) -> None:
    lines = [objects([row])[1:-1] for row in EVERYONE]
    lines[7] = lines[7][:20]
    said = {"files": "r.jsonl", "json": {"lines": True}, "bad_lines": 0.01}
    folder = put(tmp_path / "own", {"r.jsonl": b"\n".join(lines)}, {**DESCRIBED_SO, **said})
    assert "1 bad lines" in windows_of(folder).held_out.note
    with refused("r.jsonl:8: expected 9 values, got 1; 1 of 480 lines are no readings"):
        windows_of(folder, bad_lines=0.0)
