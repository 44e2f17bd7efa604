"""Which format recordings fit, and what a draft says of those that fit none."""

import io
import json
import re
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cbor2
import numpy as np
import pytest
import yaml
from scipy.io import savemat

from core.data.described.known_formats import described, open_questions
from core.data.described.members import members_of
from core.data.described.session_rows import fits
from core.data.show.draft import Draft, draft_of
from core.documents.yaml_document import parse
from tests.core.data.described.movement import (
    EVERYONE,
    HERTZ,
    Form,
    Row,
    objects,
    packed,
    put,
    rows_of,
    windows_of,
    zipped,
)
from tests.core.data.described.test_forms import FORMS, LAST_PLACE, PLAIN, Made, text
from tests.core.data.described.test_forms import described as whole
from tests.core.data.described.test_known_formats import ROWS, sample
from tests.core.data.desk import refused
from tests.tables import table

NAMELESS = ("ku-har", "serial")
"""Formats without a name of a column or a file: their shape alone is known."""
OTHERS: dict[str, str] = table("core/data/tables", "without a draft")
"""Forms of test_forms whose draft is not those windows, and why."""
UNITS: dict[str, list[str]] = table("core/data/tables", "units of forms")


def draft_or_none(folder: Path, files: Mapping[str, bytes]) -> Draft | None:
    """The draft of files in a folder; None where there is no table."""
    put(folder, files, {})
    (folder / "format.yaml").unlink()
    return draft_of(folder.name, list(members_of(folder)))


def draft(folder: Path, files: Mapping[str, bytes]) -> Draft:
    found = draft_or_none(folder, files)
    assert found is not None
    return found


def answered(found: str, acceleration: str, rotation: str) -> str:
    """A draft with a person's answers, which leave the questions behind them."""
    lines = found.splitlines()
    units = iter((acceleration, rotation))
    for line, asks in open_questions(found):
        key, _, question = asks.partition(": ")
        if key == "unit":
            answer = next(units)
        else:
            word = "label" if "what was done" in question else "person"
            answer = word if f"{word} (" in question else "null"
        lines[line - 1] = lines[line - 1].replace(f"{key}:  # ?", f"{key}: {answer}  # ?")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("row", [pytest.param(row, id=row["format"]) for row in ROWS])
def test_a_sample_fits_its_format_alone(row: dict[str, str], tmp_path: Path) -> None:
    folder = sample(row, tmp_path / "set")
    found = fits(folder, list(members_of(folder)))
    named = list(found.by_name), list(found.by_shape)
    assert named == ([], [row["format"]]) if row["format"] in NAMELESS else ([row["format"]], [])
    assert found.is_labelled


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("r.csv", Form().bytes_of(EVERYONE)),
        ("anna/walk/r.csv", b"time,gFx,gFy,gFz\n" + b"0.02,0,0,1\n" * 9),
        ("anna/walk/r.csv", b"t,ax,ay,az,gx,gy,gz\n" + b"20,0,0,1,0,0,0\n" * 9),
        ("anna/walk/r.csv", b"".join(b"%d,0,0,1,0,0,0\n" % row for row in range(0, 10**6, 10**5))),
        ("mHealth_subject1.log", b"1\t2\t3\n" * 9),
        ("a.bin", bytes(range(256)) * 9),
        ("empty.csv", b""),
    ],
)
def test_what_fits_nothing(name: str, content: bytes, tmp_path: Path) -> None:
    put(tmp_path / "set", {name: content}, {})
    found = fits(tmp_path / "set", list(members_of(tmp_path / "set")))
    assert (found.by_name, found.by_shape) == ([], [])


@pytest.mark.parametrize("name", [name for name in FORMS if name not in OTHERS])
def test_an_answered_draft_gives_the_windows_of_the_description(name: str, tmp_path: Path) -> None:
    made: Made = FORMS[name]
    expected = windows_of(put(tmp_path / "plain", *whole(text(PLAIN))))
    found = draft(tmp_path / "own", made[0])
    said = answered(found.text, *UNITS.get(name, ("g", "rad/s")))
    if name == "a file a sensor":
        said = said.replace('"{sensor}.csv"', '"{person}/{sensor}.csv"')
    (tmp_path / "own" / "format.yaml").write_text(said, encoding="utf-8")
    own = windows_of(tmp_path / "own")
    assert own.held_out.groups == expected.held_out.groups
    assert np.array_equal(own.classes(), expected.classes())
    assert float(np.abs(own.windows() - expected.windows()).max()) < 5 * LAST_PLACE


def test_a_draft_is_refused_with_all_its_questions_until_they_are_answered(tmp_path: Path) -> None:
    found = draft(tmp_path / "own", {"r.csv": PLAIN.bytes_of(EVERYONE)})
    path = tmp_path / "own" / "format.yaml"
    path.write_text(found.text, encoding="utf-8")
    with refused("format.yaml:12: unit: g, m/s2 ... line 15: unit: ... line 17: column: what was"):
        described(None, path.parent)
    once = re.sub(r"unit:  # \?", "unit: g  # ?", found.text, count=1)
    path.write_text(once, encoding="utf-8")
    with refused("format.yaml:15: unit: ... write each value before its `# ?` (3 open)"):
        described(None, path.parent)
    path.write_text(answered(found.text, "g", "rad/s"), encoding="utf-8")
    form = described(None, path.parent)
    assert (form.time.column, form.time.unit, form.time.hertz) == (("time",), "s", HERTZ)


@pytest.mark.parametrize("row", table("core/data/tables", "drafts"))
def test_what_is_found_and_what_is_asked(row: dict[str, Any], tmp_path: Path) -> None:
    sources = {"x": "ax", "y": "ay", "z": "az", "seconds": "time"}
    rows = [
        {
            **{name: one["time" if "time" in name else "ax"] for name in row["names"]},
            **{name: one[source] for name, source in sources.items()},
            "time (ms)": 1000 * float(one["time"]),
        }
        for one in rows_of("anna")
    ]
    form = Form(names=row["names"], of=row.get("of", {}))
    found = draft(tmp_path / "own", {"r.csv": form.bytes_of(rows)})
    assert row.get("says", "") in found.text
    questions = [asked for _, asked in open_questions(found.text)]
    assert any(row.get("asks", "") in asked for asked in questions)
    assert yaml.safe_load(found.text)["channels"], "a draft is YAML"


SENSORS = (("Accelerometer", "a"), ("Gyroscope", "g"))


def of_sensors(rows: list[Row]) -> list[Row]:
    """Objects of two sensors behind each other, as an app exports them."""
    return [
        {"sensor": sensor, "time": row["time"], **{axis: row[f"{word}{axis}"] for axis in "xyz"}}
        for sensor, word in SENSORS
        for row in rows
    ]


def test_a_document_of_several_sensors_has_channels_of_each(tmp_path: Path) -> None:
    files = {f"{person}.json": objects(of_sensors(rows_of(person))) for person in ("anna", "bert")}
    found = draft(tmp_path / "own", files)
    said = answered(found.text, "g", "rad/s").replace('"*.json"', '"{person}.json"')
    said = said.replace(
        "label:\n  column: null", "label:\n  intervals: {file: l.csv, begin: b, label: w}"
    )
    (tmp_path / "own" / "format.yaml").write_text(said, encoding="utf-8")
    form = described(None, tmp_path / "own")
    assert form.sensors == ("Accelerometer", "Gyroscope")
    assert form.json_ is not None
    assert form.json_.sensor == "sensor"
    assert form.channel_names[:1] == ("accelerometer_x",)


@pytest.mark.parametrize("ending", ["json", "cbor"])
def test_lists_with_names_beside_them_have_the_rate_that_the_file_says(
    ending: str, tmp_path: Path
) -> None:
    name, content = next(iter(FORMS["lists in JSON"][0].items()))
    if ending == "cbor":
        content = cbor2.dumps(json.loads(content))
    found = draft(tmp_path / "own", {name.replace("json", ending): content})
    assert f"hertz: {HERTZ:g}  # the rate that the files say" in found.text
    assert 'columns: ["ax", "ay", "az"]' in found.text


def test_a_draft_names_what_no_reader_could_take(tmp_path: Path) -> None:
    rows: list[Row] = [{"sensor": "acc", "x": 0.1, "y": 0.2, "z": 1.0}] * 9
    timeless = draft(tmp_path / "a", {"r.json": objects(rows)})
    newest = draft(tmp_path / "b", {"r.csv": PLAIN.bytes_of(EVERYONE[:80][::-1])})
    words = draft(tmp_path / "c", {"r.csv": b"t,x\n" + b"".join(b"%d,0xf\n" % t for t in range(9))})
    assert 'sensor: "acc"' in timeless.text
    assert "time falls: write the oldest reading first" in newest.text
    assert "channels:  # ? no column but the time has numbers" in words.text


@pytest.mark.parametrize(("name", "pattern"), table("core/data/tables", "paths of sensors"))
def test_sensors_in_the_names_of_files(name: str, pattern: str, tmp_path: Path) -> None:
    files = {}
    for person in ("anna", "bert"):
        for sensor, word in SENSORS:
            form = Form(names=("time", *(f"{word}{axis}" for axis in "xyz")))
            files[name.format(person=person, sensor=sensor)] = form.bytes_of(rows_of(person))
    found = draft(tmp_path / "own", files)
    assert pattern in found.text
    assert 'sensor: "Gyroscope"' in found.text


def test_any_name_of_a_column_comes_back_from_the_draft(tmp_path: Path) -> None:
    names = ['a "b"', "c: # ? d", "e\u2028\x85f", "\U0001f3c3 g", "- h", "{i}", "'j", "\ufffek"]
    head = ";".join(f'"{name.replace(chr(34), chr(34) * 2)}"' for name in names)
    rows = "".join(f"{';'.join([str(row % 7)] * len(names))}\n" for row in range(9))
    found = draft(tmp_path / "own", {"r.csv": f"{head}\n{rows}".encode()})
    document = parse(found.text, "a draft")
    assert document.problems == []
    assert [channel["columns"] for channel in document.value["channels"]] == names
    assert len(open_questions(found.text)) == 1 + len(names) + 2, "rate, units, who and what"


@pytest.mark.parametrize(("names", "rows", "says"), table("core/data/tables", "odd drafts"))
def test_no_channels(names: str, rows: str, says: str, tmp_path: Path) -> None:
    content = (names + rows * 20).encode()
    assert says in draft(tmp_path / "own", {"r.csv": content}).text


def test_files_of_labels_beside_the_readings_are_named(tmp_path: Path) -> None:
    files, _ = FORMS["intervals of time"]
    found = draft(tmp_path / "own", files)
    assert "# Files of another form: own/anna/labels.csv" in found.text
    assert 'files: "r.csv"' in found.text


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no numbers\nat all\n",
        b"PK\x03\x04 no archive",
        b"PAR1 no table",
        b"MATLAB 5 no array",
        b'{"no": "list"}',
        b"[" * 100_000,
        b"\x00" * 999,
    ],
)
def test_what_is_no_table_has_no_draft(content: bytes, tmp_path: Path) -> None:
    assert (
        draft_or_none(tmp_path / "own", {"r.dat": content, "b.zip": zipped({"c": content})}) is None
    )


def test_a_damaged_archive_is_named(tmp_path: Path) -> None:
    with refused("r.csv.gz: damaged; fetch it again"):
        draft(tmp_path / "own", {"r.csv.gz": packed(PLAIN.bytes_of(EVERYONE))[:900]})


def test_an_array_that_unpacks_to_more_than_is_read_is_not_loaded(tmp_path: Path) -> None:
    stream = io.BytesIO()
    np.savez_compressed(stream, a=np.zeros((5_000_000, 1)))
    matlab = io.BytesIO()
    savemat(matlab, {"a": np.zeros((5_000_000, 1))}, do_compression=True)
    assert draft_or_none(tmp_path / "other", {"a.mat": matlab.getvalue()}) is None
    tracemalloc.start()
    try:
        assert draft_or_none(tmp_path / "own", {"a.npz": stream.getvalue()}) is None
        assert tracemalloc.get_traced_memory()[1] < 8_000_000
    finally:
        tracemalloc.stop()


def test_of_a_large_file_the_beginning_is_read(tmp_path: Path) -> None:
    line = b"%d,%d,2,3\n"
    content = b"t,x,y,z\n" + b"".join(line % (20 * row, row % 7) for row in range(400_000))
    found = draft(tmp_path / "own", {"r.csv.gz": packed(content)})
    assert 4_000 - 2 <= len(found.columns[0].numbers) <= 4_000  # type: ignore[arg-type]
