"""What is odd about some recordings of many is refused, or counted, and never silent."""

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.data.described.known_formats import described as described_by
from core.data.described.members import PathPattern, members_of, only, sheaves
from core.data.described.session_rows import fits
from core.data.described.session_rows import rows_of as rows_read
from core.data.described.text_bytes import Damage
from core.data.show.recording import look_at_recordings
from core.data.windows import LastWindows, Pair, WindowCounts
from tests.core.data.described.movement import (
    AXES,
    DESCRIBED_SO,
    EVERYONE,
    PEOPLE,
    Form,
    iso,
    one_file,
    put,
    rows_of,
    windows_of,
    zipped,
)
from tests.core.data.described.test_forms import FORMS, described, sensors
from tests.core.data.described.test_known_formats import BY_NAME, sample
from tests.core.data.desk import refused, says
from tests.tables import table

BY_PERSON = {**DESCRIBED_SO, "files": "{person}.csv", "person": {}}
WHOSE = "who,from,until,what\n"


def by_person() -> dict[str, bytes]:
    return {f"{who}.csv": Form().bytes_of(rows_of(who)) for who in PEOPLE}


def with_intervals(folder: Path, content: str, **said: Any) -> Path:
    how = {"file": "labels.txt", "begin": "from", "label": "what", "person": "who", **said}
    files = {**by_person(), "labels.txt": (WHOSE + content).encode()}
    return put(folder, files, {**BY_PERSON, "label": {"intervals": how}})


def everyones(*rows: str) -> str:
    return "".join(f"{who},{row}\n" for who in PEOPLE for row in rows)


@pytest.mark.parametrize(("rows", "said"), table("core/data/tables", "intervals"))
def test_intervals_that_contradict(rows: list[str], said: str, tmp_path: Path) -> None:
    folder = with_intervals(tmp_path / "own", everyones(*rows), end="until")
    with refused(said):
        windows_of(folder)


HALVES = [0, 0, 0, 0, 1, 1, 1, 1] * 3


@pytest.mark.parametrize(("rows", "end"), table("core/data/tables", "intervals that follow"))
def test_an_interval_ends_with_the_next_of_the_same_person(
    rows: list[str], end: str | None, tmp_path: Path
) -> None:
    folder = with_intervals(tmp_path / "own", everyones(*rows), end=end)
    assert windows_of(folder).classes().tolist() == HALVES


@pytest.mark.parametrize("name", ["_1.csv", "_1"])
def test_a_table_of_labels_may_name_the_files(name: str, tmp_path: Path) -> None:
    rows = (
        everyones("0,,rest", "1.6,,walk")
        .replace(",0,", f"{name},0,")
        .replace(",1.6", f"{name},1.6")
    )
    folder = with_intervals(tmp_path / "own", rows, person=None, session="who")
    for path in folder.glob("*.csv"):
        path.rename(path.with_stem(f"{path.stem}_1"))
    form = folder / "format.yaml"
    form.write_text(form.read_text().replace("{person}", "{person}_{session}"))
    assert windows_of(folder).classes().tolist() == HALVES


def test_recordings_without_labels_are_named(tmp_path: Path) -> None:
    rows = everyones("0,1.58,rest", "1.6,3.18,walk").replace("anna", "Anne")
    note = windows_of(with_intervals(tmp_path / "own", rows, end="until")).held_out.note
    named = "1 recordings without a labelled reading: own/anna.csv"
    says(note, f"160 without a label; {named}")
    with refused("no interval is of a recording: they are of 'zoe', recordings are of"):
        windows_of(with_intervals(tmp_path / "other", "zoe,0,1.58,rest\n", end="until"))


@pytest.mark.parametrize(
    ("bound", "said"),
    [
        ("archive.MOST_FILES", "more than 1 files; name a smaller folder"),
        ("described.sessions.MOST_SESSIONS", "more than 1 sessions; correct `session`"),
        ("described.sessions.MOST_LABELS", "more than 1 labels, such as 'walk'"),
    ],
)
def test_more_than_any_recordings_have(
    bound: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"core.data.{bound}", 1)
    with refused(said):
        windows_of(put(tmp_path / "own", by_person(), BY_PERSON))


def test_more_files_in_archives_than_any_recordings_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core.data.archive.MOST_FILES", 3)
    folder = put(tmp_path / "own", {"x.zip": zipped(by_person())}, BY_PERSON)
    with refused("more than 3 files"):
        windows_of(folder)


@pytest.mark.parametrize(("late", "said"), table("core/data/tables", "clocks of two sensors"))
def test_sensors_of_two_clocks(late: float, said: str, tmp_path: Path) -> None:
    folder = put(tmp_path / "own", *described(sensors(late)))
    if said:
        with refused(said):
            windows_of(folder)
    else:
        assert "40 without all sensors" in windows_of(folder).held_out.note


def test_sensors_in_turn_are_no_missing_values(tmp_path: Path) -> None:
    files, _ = FORMS["sensors in turn"]
    folder = put(tmp_path / "own", files, {**DESCRIBED_SO, "files": "r.csv"})
    with refused("of 960 readings many lack ax, ay, az, gx, gy, gz in turn ... text.in_turn: true"):
        windows_of(folder)


def test_two_recordings_of_one_table_and_the_same_times(tmp_path: Path) -> None:
    whose = {**DESCRIBED_SO, "files": "{person}/*.csv", "person": {}}
    how = {"file": "labels.txt", "begin": "from", "label": "what"}
    files = {f"{who}/{at}.csv": Form().bytes_of(rows_of(who)) for who in PEOPLE for at in "ab"}
    files |= {f"{who}/labels.txt": b"from,what\n0,rest\n1.6,walk\n" for who in PEOPLE}
    folder = put(tmp_path / "own", files, {**whose, "label": {"intervals": how}})
    with refused("labels.txt: ... anna are of two recordings of the same times (own/anna/a.csv"):
        windows_of(folder)
    put(folder, {}, {**whose, "label": {"intervals": {**how, "shared": True}}})
    assert windows_of(folder).rows == 2 * 3 * 8


@pytest.mark.parametrize("zone", [None, "+02:00"])
def test_dates_without_a_zone_beside_seconds_of_the_epoch(zone: str | None, tmp_path: Path) -> None:
    shift = 7200 if zone else 0
    rows = everyones(f"{iso(shift)},rest", f"{iso(shift + 1.6)},walk")
    clock = Form(of={"time": ("plus", 1.78e9)})
    files = {f"{who}.csv": clock.bytes_of(rows_of(who)) for who in PEOPLE}
    files["labels.txt"] = f"who,from,what\n{rows}".encode()
    how = {"file": "labels.txt", "begin": "from", "label": "what", "person": "who", "unit": "iso"}
    time = {**DESCRIBED_SO["time"], "zone": zone}
    folder = put(tmp_path / "own", files, {**BY_PERSON, "time": time, "label": {"intervals": how}})
    if zone:
        assert windows_of(folder).classes().tolist() == HALVES
    else:
        with refused("dates of intervals have no zone ... write time.zone"):
            windows_of(folder)


@pytest.mark.parametrize(("name", "how"), table("core/data/tables", "dates beside a rate"))
def test_dates_beside_a_rate_are_not_left_out(name: str, how: str, tmp_path: Path) -> None:
    files, said = FORMS[name]
    folder = put(tmp_path / "own", files, {**DESCRIBED_SO, **said, "time": {"hertz": 50}})
    with refused(f"time (2 ... write time.column: time and {how}"):
        windows_of(folder)


def test_files_of_one_name(tmp_path: Path) -> None:
    content = Form().bytes_of(EVERYONE)
    twice = zipped({"r.csv": content, "r.csx": content}).replace(b"r.csx", b"r.csv")
    with refused("has 'r.csv' twice, and one would hide the other; pack it again"):
        windows_of(one_file(tmp_path / "own", twice, "x.zip"))
    folder = one_file(tmp_path / "other")
    with refused("r.csv and ... r.csv.gz would be one recording; move one away"):
        windows_of(one_file(folder, b"", "r.csv.gz"))


def test_folders_behind_links(tmp_path: Path) -> None:
    files = by_person()
    elsewhere = put(tmp_path / "elsewhere", {"cleo.csv": files.pop("cleo.csv")}, {})
    folder = put(tmp_path / "own", files, BY_PERSON)
    (folder / "linked").symlink_to(elsewhere)
    assert windows_of(folder).held_out.groups == PEOPLE
    (folder / "again").symlink_to(elsewhere)
    with refused("a link leads to a folder that is here already"):
        windows_of(folder)


def test_some_of_the_people_for_the_test_are_missing(tmp_path: Path) -> None:
    said = {**BY_PERSON, "test_people": ["cleo", "zoe"]}
    note = windows_of(put(tmp_path / "own", by_person(), said)).held_out.note
    assert "no windows of zoe, who are the test too" in note


@pytest.mark.parametrize(("of", "said"), table("core/data/tables", "odd recordings"))
def test_each_recording_is_judged_by_itself_whatever_the_split(
    of: dict[str, Any], said: str, tmp_path: Path
) -> None:
    forms = [Form(), Form(of=of), Form(), Form()]
    files = {
        f"{who}/{number}.csv": form.bytes_of(rows_of(who))
        for who in PEOPLE
        for number, form in enumerate(forms)
    }
    folder = put(tmp_path / "own", files, {**BY_PERSON, "files": "{person}/{session}.csv"})
    (wrong,) = look_at_recordings(folder, described_by(None, folder))["wrong"]
    says(wrong, said)
    for split, groups in (("groups", "user"), ("random", "user"), ("groups", "session")):
        with refused(said):
            windows_of(folder, split=split, groups=groups)


@pytest.mark.parametrize(
    ("pattern", "name", "said"), table("core/data/tables", "readings of a path")
)
def test_a_path_has_one_reading_or_is_refused_with_two(
    pattern: str, name: str, said: dict[str, str] | str | None
) -> None:
    if isinstance(said, str):
        with refused(said):
            PathPattern(pattern).fits(name)
        return
    found = PathPattern(pattern).fits(name)
    assert (found[1] if found else None) == said


def test_known_labels_decide_and_two_patterns_may_not_contradict(tmp_path: Path) -> None:
    readings = PathPattern("{label}_{person}.csv").readings("walk_fast_anna.csv")
    found = only("own", readings, ["walk"])
    assert found is not None
    assert found[1] == {"label": "walk", "person": "fast_anna"}
    said = {**DESCRIBED_SO, "files": ["{label}/{person}.csv", "{person}/{label}.csv"], "label": {}}
    with refused("own/rest/anna.csv: fits `files` in two ways: label, person is rest, anna or"):
        windows_of(put(tmp_path / "own", {"rest/anna.csv": b""}, {**said, "person": {}}))


def test_known_formats_begin_in_one_folder(tmp_path: Path) -> None:
    row = {**BY_NAME["physics-toolbox"], "path": "{who}/{what}/2026-01-0{place}/r.csv"}
    folder = sample(row, tmp_path / "own")
    with refused("begins in 'own/anna/' and in 'own/bert/'; name one folder, or describe ... like"):
        sheaves(folder, described_by("physics-toolbox", folder))
    assert not fits(folder, [*members_of(folder)]).is_labelled
    own = described_by("physics-toolbox", folder).model_copy(
        update={"files": ("{person}/{label}/*/*.csv",)}
    )
    assert sheaves(folder, own)[0].path_fields == {"person": "anna", "label": "rest"}


def test_one_person_is_tested_by_the_last_fifth_of_each_recording(tmp_path: Path) -> None:
    """Of 80 samples, windows of 20 at stride 16 begin at 0, 16, 32 and 48: the last is the test."""
    content = Form().bytes_of(rows_of("anna"))
    folder = one_file(tmp_path / "r", content)
    with refused("got 'anna' alone; add recordings, set jobs.train.data.split to time"):
        windows_of(folder, window_steps=20)
    found = windows_of(folder, window_steps=20, split="time")
    assert found.classes().tolist() == [0, 0, 1, 1, 0, 1]
    first = np.array([[row[axis] for axis in AXES] for row in rows_of("anna")], np.float32)
    for row, begin in enumerate((0, 16, 80, 96, 48, 128)):
        assert np.array_equal(found.windows()[row], first[begin : begin + 20])
    assert (found.held_out.leak, found.subjects()[0]) == ("", -1)
    for windows, overlap in ((6, 14), (2, 0)):
        counts = WindowCounts({(Pair("anna"), 0): windows}, ("rest",), ("user",))
        with refused("'rest' has too few windows for a last fifth; record longer"):
            LastWindows(folder, counts, overlap)


def test_windows_of_both_sides_are_counted(tmp_path: Path) -> None:
    rows = [{**row, "person": who} for who in PEOPLE for row in rows_of("anna")]
    leak = windows_of(one_file(tmp_path / "own", Form().bytes_of(rows))).held_out.leak
    says(leak, "8 of 8 test windows are training ones too, so its figures promise too much")
    assert windows_of(one_file(tmp_path / "other")).held_out.leak == ""


@pytest.mark.parametrize("name", ["sensor-logger", "sensor-logger-json"])
def test_an_iphone_s_signs_are_those_of_android(name: str, tmp_path: Path) -> None:
    """Bert's iPhone gives the opposite of anna's Android, unless it is standardised."""
    means = []
    for standardised in ("true", "false"):
        folder = sample(BY_NAME[name], tmp_path / standardised)
        for path in folder.rglob("*/bert/*/*.*"):
            said = {"platform": "iOS", "standardisation": standardised}
            if name.endswith("json"):
                rows = [*json.loads(path.read_bytes()), {"sensor": "Metadata", **said}]
                path.write_bytes(json.dumps(rows).encode())
                continue
            with zipfile.ZipFile(path) as archive:
                files = {one: archive.read(one) for one in archive.namelist()}
            files["Metadata.csv"] = "".join(
                f"{','.join(row)}\n" for row in (said, said.values())
            ).encode()
            path.write_bytes(zipped(files))
        form = described_by(name, folder)
        first = next(sheaf for sheaf in sheaves(folder, form) if "bert" in sheaf.name)
        read = next(rows_read(first, form, Damage()))
        means.append((read.values @ form.mixing).mean(axis=0))
    assert means[0] == pytest.approx(means[1] * [-1, -1, -1, 1, 1, 1])
    assert means[0][2] == pytest.approx(1.0)
