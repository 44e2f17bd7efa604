"""What is odd about some recordings of many is refused, or counted, and never silent."""

from pathlib import Path
from typing import Any

import pytest

from tests.core.data.described.movement import (
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


def test_an_interval_without_an_end_ends_with_the_next_of_the_same_person(tmp_path: Path) -> None:
    folder = with_intervals(tmp_path / "own", everyones("0,,rest", "1.6,,walk"))
    assert windows_of(folder).classes().tolist() == [0, 0, 0, 0, 1, 1, 1, 1] * 3


def test_recordings_without_labels_are_named(tmp_path: Path) -> None:
    rows = everyones("0,1.58,rest", "1.6,3.18,walk").replace("anna", "Anne")
    note = windows_of(with_intervals(tmp_path / "own", rows, end="until")).held_out.note
    named = "1 recordings without a labelled reading: own/anna.csv"
    says(note, f"160 without a label; {named}")


@pytest.mark.parametrize(
    ("late", "said"),
    [
        (0.8, ""),
        (1e6, "bert/Acc.csv: the sensors ... Acc from 0 to 3.18 s, Gyro from 1000000"),
    ],
)
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
    clock = Form(of={"time": lambda time: 1.78e9 + time})
    files = {f"{who}.csv": clock.bytes_of(rows_of(who)) for who in PEOPLE}
    files["labels.txt"] = f"who,from,what\n{rows}".encode()
    how = {"file": "labels.txt", "begin": "from", "label": "what", "person": "who", "unit": "iso"}
    time = {**DESCRIBED_SO["time"], "zone": zone}
    folder = put(tmp_path / "own", files, {**BY_PERSON, "time": time, "label": {"intervals": how}})
    if zone:
        assert windows_of(folder).classes().tolist() == [0, 0, 0, 0, 1, 1, 1, 1] * 3
    else:
        with refused("dates of intervals have no zone ... write time.zone"):
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
