"""HHAR: windows within one person, device and activity, whole people or devices held out, wrong lines by number."""

import json
import tracemalloc
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.data import Dataset, find_source, hhar, open_prepared, prepare
from cluster.data.dataset import MANIFEST
from cluster.data.hhar import ACTIVITIES, COLUMNS, LONGEST_GAP_MS, HharFile, _Cutter
from cluster.data.recordings import Cutting
from cluster.data.synthetic_hhar import main, write_hhar
from cluster.errors import DataError
from tests.habits import needs

STEPS, STRIDE = 20, 8
Row = list[str]
HEAD = ",".join(COLUMNS) + "\n"
SAMPLES = Path(__file__).resolve().parents[3] / "shared" / "data" / "hhar_sample"


def row(user: str, device: str, activity: str, ms: int, x: float = 0.5) -> Row:
    return ["0", str(ms), str(ms * 10**6), f"{x:g}", "0.25", "9.8", user, device.split("_")[0], device, activity]


def stretch(user: str, device: str, activity: str, count: int, ms: int = 0) -> list[Row]:
    return [row(user, device, activity, ms + 5 * place, place) for place in range(count)]


def people(users: str = "abcde", count: int = 60) -> list[Row]:
    """Everybody does two activities with two devices."""
    return [
        one
        for user in users
        for device in ("s3_1", "nexus4_2")
        for activity in ("sit", "walk")
        for one in stretch(user, device, activity, count)
    ]


def write(
    folder: Path, rows: Iterable[Sequence[str]], head: str = HEAD, name: str = "Phones_accelerometer.csv"
) -> Path:
    path = folder / name
    path.write_text(head + "".join(",".join(values) + "\n" for values in rows))
    return path


def read(path: Path, cache: Path, **options: Any) -> Dataset:
    source = find_source(str(path), {}, path, path)
    assert source.kind == "hhar"
    return prepare(source, window_steps=STEPS, window_stride=STRIDE, cache=cache / "cache", options=options)


def windows_of(rows: Sequence[Row]) -> dict[tuple[str, str, str], list[list[float]]]:
    """What the module promises, the slow way: x of each window by person, device and activity."""
    by_pair = defaultdict(list)
    for values in rows:
        by_pair[values[6], values[8]].append(values)
    found = defaultdict(list)
    for (user, device), own in by_pair.items():
        stretches, before = [[own[0]]], own[0]
        for values in own[1:]:
            if values[9] != before[9] or abs(int(values[1]) - int(before[1])) > LONGEST_GAP_MS:
                stretches.append([])
            stretches[-1].append(values)
            before = values
        for one in stretches:
            for begin in range(0, len(one) - STEPS + 1, STRIDE):
                found[user, device, one[0][9]].append([float(values[3]) for values in one[begin : begin + STEPS]])
    return found


def test_windows_stay_within_one_person_device_activity_and_time(tmp_path: Path) -> None:
    """Rows of several devices alternate, across the chunks that a file is read in."""
    random = np.random.default_rng(3)
    queues = {}
    for user in "abcde":
        for device in ("s3_1", "nexus4_2", "s3mini_1"):
            own, ms = [], 0
            for _ in range(12):
                activity = ACTIVITIES[int(random.integers(len(ACTIVITIES)))]
                for _ in range(int(random.integers(5, 90))):
                    ms += int(random.choice([0, 5, 10, 900, 1000]))
                    own.append(row(user, device, activity, ms, float(random.normal())))
                ms += int(random.choice([5, 1001, 60_000]))
            queues[user, device] = own
    rows = []
    while queues:
        pair = list(queues)[int(random.integers(len(queues)))]
        count = int(random.integers(1, 50))
        rows += queues[pair][:count]
        queues[pair] = queues[pair][count:]
        if not queues[pair]:
            del queues[pair]
    expected = windows_of(rows)

    dataset = read(write(tmp_path, rows), tmp_path)

    assert dataset.rows == sum(map(len, expected.values())) > 300
    got = defaultdict(list)
    x, names = np.asarray(dataset.windows())[:, :, 0], dataset.held_out.groups
    for window, label, group in zip(x, dataset.classes(), dataset.subjects(), strict=True):
        got[names[group], dataset.labels[label]].append(window.tolist())
    wanted: dict[tuple[str, str], list[list[float]]] = defaultdict(list)
    for (user, _, activity), windows in expected.items():
        wanted[user, activity] += np.array(windows, np.float32).tolist()
    assert {key: sorted(windows) for key, windows in got.items()} == {
        key: sorted(windows) for key, windows in wanted.items() if windows
    }


def test_every_spelling_of_a_name_is_one_person_and_their_number_costs_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hhar, "MOST_PAIRS", 20)
    rows = people()
    expected = windows_of(rows)
    for place, values in enumerate(rows):
        values[6] += " " * (place % 97)
        values[9] = " " * (place % 89) + values[9]
    table = HharFile(write(tmp_path, rows))
    cutter = _Cutter(table, Cutting(STEPS, STRIDE, 0))
    found = sum(len(piece.windows) for piece in cutter.pieces())
    assert found == sum(map(len, expected.values()))
    assert len(cutter._codes) <= 20


def test_a_clock_that_jumps_back_ends_a_window_too(tmp_path: Path) -> None:
    rows = people()
    rows += stretch("a", "s3_1", "sit", STEPS - 1, 50_000) + stretch("a", "s3_1", "sit", STEPS - 1, 20_000)
    assert read(write(tmp_path, rows), tmp_path).rows == sum(map(len, windows_of(people()).values()))


def test_whole_people_are_the_test_and_their_numbers_have_names(tmp_path: Path) -> None:
    dataset = read(write(tmp_path, people()), tmp_path)
    train, test = np.split(dataset.subjects(), [dataset.train_windows])
    assert set(train.tolist()) | set(test.tolist()) == {0, 1, 2, 3, 4}
    assert not set(train.tolist()) & set(test.tolist())
    assert (dataset.held_out.by, dataset.held_out.groups, dataset.held_out.leak) == ("user", tuple("abcde"), "")
    note = "5 users (a, b, c, d, e), 2 devices (nexus4_2, s3_1)"
    assert dataset.held_out.lines() == (note, "groups by user: 0 a, 1 b, 2 c, 3 d, 4 e")
    assert (dataset.labels, dataset.input_shape, dataset.holds_windows) == (("sit", "walk"), (STEPS, 3), True)
    assert open_prepared(dataset.folder).held_out == dataset.held_out


def test_groups_may_be_devices(tmp_path: Path) -> None:
    dataset = read(write(tmp_path, people()), tmp_path, groups="device")
    assert dataset.held_out.groups == ("nexus4_2", "s3_1")
    train, test = np.split(dataset.subjects(), [dataset.train_windows])
    assert (len(set(train.tolist())), len(set(test.tolist()))) == (1, 1)


def test_a_random_split_is_named_a_leak_and_names_no_groups(tmp_path: Path) -> None:
    path = write(tmp_path, people("a"))
    dataset = read(path, tmp_path, split="random")
    assert dataset.test_windows == round(0.2 * dataset.rows)
    assert set(dataset.subjects().tolist()) == {-1}
    assert "overlap" in dataset.held_out.leak
    assert dataset.held_out.lines()[-1].startswith("LEAK: ")
    assert json.loads((dataset.folder / MANIFEST).read_text())["held_out"]["by"] == "window"


def test_the_class_null_may_be_left_out(tmp_path: Path) -> None:
    rows = people() + [one for user in "abcde" for one in stretch(user, "s3_1", "null", 60, 10**6)]
    path = write(tmp_path, rows)
    assert read(path, tmp_path).labels == ("sit", "walk", "null")
    without = read(path, tmp_path, null_class=False)
    assert without.labels == ("sit", "walk")
    assert without.rows == read(write(tmp_path, people()), tmp_path).rows


def test_the_line_of_names_may_be_missing_or_in_another_order(tmp_path: Path) -> None:
    rows = people()
    known = read(write(tmp_path, rows), tmp_path).sha256
    assert read(write(tmp_path, rows, head=""), tmp_path).sha256 == known
    turned = [values[::-1] for values in rows]
    assert read(write(tmp_path, turned, ",".join(COLUMNS[::-1]) + "\n", "mine.csv"), tmp_path).sha256 == known


def test_a_table_of_other_columns_stays_a_table(tmp_path: Path) -> None:
    path = tmp_path / "houses.csv"
    path.write_text("x,y,z,target\n1,2,3,yes\n")
    assert find_source(str(path), {}, path, path).kind == "csv"


def test_a_folder_that_holds_the_file_is_enough(tmp_path: Path) -> None:
    path = write(tmp_path, people())
    found = find_source(str(tmp_path), {}, tmp_path, tmp_path)
    assert (found.kind, found.path) == ("hhar", path)


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        (3, "abc", ":6: x: expected a finite number, got 'abc'; correct or remove the row"),
        (4, "nan", ":6: y: expected a finite number, got 'nan'; correct or remove the row"),
        (5, "1e60", ":6: z: expected a finite number, got '1e60'; correct or remove the row"),
        (1, "", ":6: Arrival_Time: expected a finite number, got ''; correct or remove the row"),
        (6, " ", ":6: User: expected a name, got nothing; correct or remove the row"),
        (8, "", ":6: Device: expected a name, got nothing; correct or remove the row"),
        (9, "swim", ":6: gt: expected bike, sit, stand, walk, stairsup, stairsdown, null, got 'swim'; correct or"),
        (9, "sit,1", ":6: expected 10 values as the first line names, got 11; correct the line"),
    ],
)
def test_a_wrong_line_is_named_and_nothing_is_left(tmp_path: Path, column: int, value: str, words: str) -> None:
    rows = people()
    rows[4][column] = value
    path = write(tmp_path, rows)
    with pytest.raises(DataError) as caught:
        read(path, tmp_path)
    assert str(caught.value).startswith(f"{path}{words}")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "cache").exists() or not list((tmp_path / "cache").iterdir())


@pytest.mark.parametrize(
    ("rows", "options", "words"),
    [
        ([], {}, "expected a line of column names and rows below it, got neither"),
        (people("a"), {}, "at least 2 users, so that one can be held out for the test, got 'a' alone; add recordings, "
         "set jobs.train.data.groups to device, or set jobs.train.data.split to random"),
        (stretch("a", "s3_1", "sit", 60) + stretch("a", "s3_1", "walk", 60), {}, "add recordings, set jobs.train.data."
         "split to random, which is a leak"),
        (stretch("a", "s3_1", "sit", STEPS - 1), {}, f"expected a stretch of {STEPS} readings"),
        (stretch("a", "s3_1", "sit", 60), {"split": "random"}, "at least 2 activities, got sit alone"),
        (people(), {"groups": "model"}, "groups and split: expected user or device and groups or random"),
    ],
)  # fmt: skip
def test_what_cannot_be_split_says_what_to_do(
    tmp_path: Path, rows: list[Row], options: dict[str, str], words: str
) -> None:
    with pytest.raises(DataError) as caught:
        read(write(tmp_path, rows), tmp_path, **options)
    assert words in str(caught.value)


def test_a_class_of_held_out_people_alone_is_refused(tmp_path: Path) -> None:
    named = read(write(tmp_path, people()), tmp_path)
    held_out = named.held_out.groups[int(named.subjects()[-1])]
    with pytest.raises(DataError, match=f"'bike' has windows of the users {held_out} alone, who are held out"):
        read(write(tmp_path, people() + stretch(held_out, "s3_1", "bike", 60, 10**6)), tmp_path)


def test_missing_columns_are_named(tmp_path: Path) -> None:
    path = tmp_path / "Watch_gyroscope.csv"
    path.write_text("Index,Arrival_Time,x,y,z,User,gt\n0,1,1,1,1,a,sit\n")
    with pytest.raises(DataError, match=r"Watch_gyroscope.csv:1: expected the columns Index,.* got no Device among"):
        read(path, tmp_path)


def test_the_published_samples(tmp_path: Path) -> None:
    """One with a line of names, one without; both of one person and one phone."""
    if not SAMPLES.is_dir():
        needs.skip("the samples of HHAR are not in ../shared/data")
    path = SAMPLES / "paipradeep" / "Phones_accelerometer.csv"
    source = find_source(str(path), {}, path, path)
    with pytest.raises(DataError, match="at least 2 users"):
        prepare(source, window_steps=200, window_stride=20, cache=tmp_path)
    dataset = prepare(source, window_steps=200, window_stride=20, cache=tmp_path, options={"split": "random"})
    assert dataset.labels == ACTIVITIES
    assert dataset.rows == 257
    plain = SAMPLES / "rdavilao" / "Phones_accelerometer.csv"
    with pytest.raises(DataError, match="at least 2 activities, got stand alone"):
        prepare(find_source(str(plain), {}, plain, plain), cache=tmp_path, options={"split": "random"})


def test_the_invented_recordings_are_in_the_format_and_seeded(tmp_path: Path) -> None:
    path, again = tmp_path / "a.csv", tmp_path / "b.csv"
    rows = write_hhar(path, people=3, devices=3, seconds=2.0, seed=5)
    assert rows == len(path.read_text().splitlines()) - 1 == 3 * 7 * 2 * 2 * (200 + 200 + 150)
    dataset = read(path, tmp_path)
    assert dataset.labels == ACTIVITIES
    assert dataset.held_out.groups == ("a", "b", "c")
    gravity = np.linalg.norm(np.asarray(dataset.windows()).mean(axis=1), axis=1)
    assert 9.0 < np.median(gravity) < 10.6
    assert read(path, tmp_path, groups="device").held_out.groups == ("nexus4_1", "nexus4_2", "s3_1")
    write_hhar(again, people=3, devices=3, seconds=2.0, seed=5)
    assert again.read_bytes() == path.read_bytes()


@pytest.mark.long
def test_memory_is_that_of_some_rows(tmp_path: Path) -> None:
    path = tmp_path / "Phones_accelerometer.csv"
    write_hhar(path, people=4, devices=2, seconds=4.0)
    tracemalloc.start()
    try:
        source = find_source(str(path), {}, path, path)
        dataset = prepare(source, window_steps=200, window_stride=5, cache=tmp_path / "cache")
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
