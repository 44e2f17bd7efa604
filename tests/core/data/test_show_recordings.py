"""Recordings of a format, as `fab data show` finds, reads, judges and draws them."""

import json
import os
import re
import zipfile
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from core.data.described.known_formats import described
from core.data.show import Facts, recording, recording_sections
from core.data.show.recording import look_at_recordings
from core.web.sections import page_of, terminal_lines
from tests.core.data.described.movement import (
    DESCRIBED_SO,
    EVERYONE,
    HERTZ,
    STEPS,
    Form,
    Row,
    put,
    rows_of,
)
from tests.core.data.described.test_known_formats import BY_NAME, sample
from tests.core.data.desk import Show
from tests.core.data.makers import write_folder
from tests.tables import table

WINDOWS = ("--window-steps=32", "--window-stride=16")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user-cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def look(folder: Path, rows: list[Row] = EVERYONE, form: Form | None = None, **said: Any) -> Facts:
    """What is seen of these rows in one file."""
    content = (form or Form()).bytes_of(rows)
    put(folder, {"r.csv": content}, {"files": "r.csv", **DESCRIBED_SO, **said})
    return look_at_recordings(folder, described(None, folder))


def test_people_classes_rates_and_seconds_are_those_of_the_rows(tmp_path: Path) -> None:
    found = look(tmp_path / "own")
    assert [(one["person"], one["readings"]) for one in found["sessions"]] == [
        ("anna", 160),
        ("bert", 160),
        ("cleo", 160),
    ]
    assert all(one["hertz"] == pytest.approx(HERTZ) for one in found["sessions"])
    assert [(one["label"], one["readings"], one["people"]) for one in found["labels"]] == [
        ("rest", 3 * STEPS, 3),
        ("walk", 3 * STEPS, 3),
    ]
    assert (found["readings"], found["is_whole"], found["wrong"], found["asked"]) == (
        480,
        True,
        [],
        [],
    )
    first = [[row[axis] for axis in ("ax", "ay", "az")] for row in rows_of("anna")[:STEPS]]
    assert [list(values[:3]) for values in found["excerpts"][0]["values"]] == first
    means = {one["name"]: one["mean"] for one in found["channels"]}
    assert means["acc_z"] == pytest.approx(sum(row["az"] for row in EVERYONE) / len(EVERYONE))
    for one in found["sessions"]:
        assert one["rates"] == pytest.approx([HERTZ] * len(one["rates"]), rel=0.3)


def test_pauses_and_times_out_of_order_are_counted_and_drawn(tmp_path: Path) -> None:
    rows = rows_of("anna")
    jumped = [*rows[:40], rows[39], rows[35], *rows[40:60], *rows[100:]]
    (session,) = look(tmp_path / "own", jumped)["sessions"]
    assert (session["pauses"], session["unordered"]) == (1, 2)
    assert session["longest_pause"] == pytest.approx(41 / HERTZ)
    assert min(session["rates"]) == 0.0


@pytest.mark.parametrize("row", table("core/data/tables", "looks wrong").values())
def test_what_looks_wrong_is_said_with_the_likely_cause(
    row: dict[str, Any], tmp_path: Path
) -> None:
    found = look(tmp_path / "own", form=Form(of=row.get("of", {})), **row.get("format", {}))
    assert any(re.search(row["says"], one) for one in found["wrong"] + found["asked"])


def test_what_no_file_says_is_asked_for_by_key(tmp_path: Path) -> None:
    label = {"column": "label", "words": {"rest": "rest"}}
    found = look(tmp_path / "own", time={"column": "time"}, label=label)
    assert found["asked"] == [
        "the rate of windows: readings come 50 a second; give --set jobs.train.data.sampling_hz=N",
        "what 'walk' means, the label of 240 readings: label.words",
    ]


def test_reading_ends_with_the_time_or_the_readings_that_a_person_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "own"
    files = {f"{number}.csv": Form().bytes_of(EVERYONE) for number in range(5)}
    put(folder, files, {**DESCRIBED_SO, "files": "*.csv"})
    turns = count()
    form = described(None, folder)
    by_time = look_at_recordings(
        folder, form, clock=lambda: recording.MOST_SECONDS * next(turns) / 2
    )
    assert (by_time["is_whole"], by_time["files"], by_time["readings"]) == (False, 5, 480)
    monkeypatch.setattr(recording, "MOST_READINGS", 500)
    by_rows = look_at_recordings(folder, form)
    assert (by_rows["is_whole"], by_rows["readings"]) == (False, 960)
    assert "readings: 960 (the first)" in next(terminal_lines(recording_sections(by_rows)))


def test_a_damaged_recording_is_named_and_the_others_are_shown(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    files = {"a.csv": Form().bytes_of(EVERYONE), "b.csv": b"other,names\n1,2\n"}
    put(folder, files, {**DESCRIBED_SO, "files": "*.csv"})
    found = look_at_recordings(folder, described(None, folder))
    assert found["readings"] == 480
    assert "b.csv:1: expected a column 'ax'" in found["wrong"][0]


def test_page_and_terminal_show_the_same_and_escape_what_a_file_says(tmp_path: Path) -> None:
    rows = [{**row, "label": "<b>x</b>", "person": "<i>"} for row in rows_of("anna")]
    found = look(tmp_path / "own", rows)
    text = page_of("<b>own", recording_sections(found))
    assert "<b>" not in text
    assert "default-src 'none'" in text
    assert "&lt;b&gt;x&lt;/b&gt;" in text
    assert text.count("<svg") == 2 * len(found["excerpts"]) + len(found["sessions"]), "g and rad/s"
    for title in ("Recorded", "Sessions", "Readings", "Rate over time", "Some seconds of each"):
        assert f"<h2>{title}" in text
    shown = list(terminal_lines(recording_sections(found), blocks=False))
    assert max(map(len, shown)) < 110
    assert "".join(shown).isascii()
    assert any(line.startswith("  acc_x ") for line in shown)


def test_an_app_s_files_are_found_shown_and_cut_with_no_word_on_their_format(
    tmp_path: Path, show: Show
) -> None:
    folder = sample(BY_NAME["sensor-logger"], tmp_path / "set")
    said = show(folder, *WINDOWS, "--out=page.html").out
    assert "(fits the format sensor-logger)" in said
    assert "22 training and 22 test windows of 32 x 6" in said
    shown = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert shown.index("Some seconds of each class") < shown.index("<h2>Windows</h2>")
    found = json.loads(show(next(folder.rglob("*.zip")), *WINDOWS, "--json").out)
    assert (found["format"], found["recordings"]["readings"]) == ("sensor-logger", 200)
    said = "who, and what was done: name a folder with {person}/{label}/*.zip/{sensor}.csv"
    assert found["recordings"]["asked"][-1] == said


def test_labels_that_an_app_noted_are_hinted_at_and_trained_on_as_the_hint_says(
    tmp_path: Path, show: Show
) -> None:
    folder = sample(BY_NAME["sensor-logger"], tmp_path / "set")
    for at, path in enumerate(sorted(folder.rglob("*.zip"))):
        with zipfile.ZipFile(path, "a") as archive:
            begin = archive.read("Gravity.csv").decode().splitlines()[1].split(",")[0]
            archive.writestr("Annotation.csv", f"time,text\n{begin},{'ab'[at % 2]}\n")
    (hint,) = (line for line in show(folder, *WINDOWS).out.splitlines() if "Annotation" in line)
    found = re.search(r"write (\{.*\}) to a file", hint)
    assert found is not None
    (tmp_path / "mine.yaml").write_text(found[1], encoding="utf-8")
    people = tmp_path / "people"
    for path in sorted(folder.rglob("*.zip")):
        os.renames(path, people / path.parts[-3] / f"{path.parts[-2]}.zip")
    asked = '--options={"format": "mine.yaml"}'
    shown = json.loads(show(people, *WINDOWS, asked, "--json").out)
    assert [row["label"] for row in shown["classes"]] == ["a", "b"]
    assert "Annotation" not in str(shown["recordings"]["asked"])


def test_recordings_whose_windows_cannot_be_cut_are_shown_with_the_reason(
    tmp_path: Path, show: Show
) -> None:
    folder = sample(BY_NAME["edge-impulse-csv"], tmp_path / "set")
    said = show(folder, *WINDOWS, "--json", code=2)
    found = json.loads(said.out)
    assert "nothing says the rate of windows" in found["problem"]
    assert "nothing says the rate of windows" in said.err
    rate = '--options={"sampling_hz": 50.0}'
    found = json.loads(show(folder, *WINDOWS, rate, "--json").out)
    assert "sampling_hz" not in str(found["recordings"]["asked"])
    assert [row["label"] for row in found["classes"]] == ["idle", "wave"]


def test_a_person_chooses_where_several_fit_or_the_shape_alone_does(
    tmp_path: Path, show: Show
) -> None:
    folder = sample(BY_NAME["serial"], tmp_path / "set")
    assert "no names that say it; give --format serial if it is that" in show(folder, code=2).err
    head = b"time,gFx,gFy,gFz,wx,wy,wz,timestamp,accX,accY,accZ\n"
    both = b"".join(b"%.2f,0,0,1,0,0,0,%d,0,0,9\n" % (row / 50, 20 * row) for row in range(9))
    put(tmp_path / "both", {"anna/walk/r.csv": head + both}, {})
    (tmp_path / "both" / "format.yaml").unlink()
    said = show(tmp_path / "both", code=2).err
    assert "fits the formats edge-impulse-csv and physics-toolbox; choose one with" in said


def test_many_channels_are_drawn_too_and_a_pipe_is_not_opened(tmp_path: Path, show: Show) -> None:
    folder = sample(BY_NAME["mhealth"], tmp_path / "set")
    said = show(folder, *WINDOWS, "--out=page.html").out
    assert said.count("  ankle_gyro_z ") == 4, "an excerpt and a window of each class"
    assert "<svg" in (tmp_path / "page.html").read_text(encoding="utf-8")
    os.mkfifo(folder / "pipe.log")
    refused = show(folder, *WINDOWS, code=2)
    assert "pipe.log: expected a file, got something else" in refused.err
    assert refused.out.count("  ankle_gyro_z ") == 2


def test_a_draft_is_written_once_and_over_an_older_one_only_when_asked(
    tmp_path: Path, show: Show
) -> None:
    (tmp_path / "own.csv").write_bytes(Form().bytes_of(EVERYONE))
    found = json.loads(show("own.csv", "--json").out)
    assert (found["draft"], len(found["questions"])) == ("format.yaml", 4)
    draft = (tmp_path / "format.yaml").read_text(encoding="utf-8")
    (tmp_path / "format.yaml").write_text("mine", encoding="utf-8")
    assert "format.yaml: is there already; use it with --format" in show("own.csv", code=2).err
    assert (tmp_path / "format.yaml").read_text(encoding="utf-8") == "mine"
    said = show("own.csv", "--force").out
    assert "own.csv fits no known format; a draft of one is in format.yaml" in said
    assert "next: answer them, then fab data show own.csv --format format.yaml" in said
    assert (tmp_path / "format.yaml").read_text(encoding="utf-8") == draft
    asked = '--options={"format": "format.yaml"}'
    assert "(4 open)" in show("own.csv", asked, code=2).err


def test_a_draft_is_made_of_whatever_has_numbers(tmp_path: Path, show: Show) -> None:
    rows = "".join(f"{row % 7},{row % 5},{'ab'[row % 2]}\n" for row in range(60))
    files = dict.fromkeys(("ann/sit.csv", "bob/walk.csv"), f"u,v,label\n{rows}".encode())
    write_folder(tmp_path / "tables", files)
    show("tables", "--draft=other.yaml")
    draft = (tmp_path / "other.yaml").read_text(encoding="utf-8")
    assert "hertz:  # ? readings a second" in draft
    assert 'with {label} in files, such as "{person}/{label}.csv"' in draft
    (tmp_path / "words.txt").write_text("no numbers\n", encoding="utf-8")
    assert "not a recording of a known kind" in show("words.txt", code=2).err
    assert "nothing.csv: no such file or folder" in show("nothing.csv", code=2).err
