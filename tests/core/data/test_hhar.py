"""HHAR: windows within one person, device and activity.

Whole people or devices are held out, wrong lines are named by number.
"""

import itertools
import json
import operator
import zipfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.data import Dataset, hhar_windows, open_prepared
from core.data.dataset import MANIFEST, HeldOut
from core.data.hhar_windows import ACTIVITIES, COLUMNS, LONGEST_GAP_MS, HharFile, WindowCutter
from core.data.recordings import Cutting, cut
from tests.core.data.desk import Desk, has, refused, wrong
from tests.core.data.hhar_rows import (
    CUT,
    HEAD,
    NAME,
    STEPS,
    STRIDE,
    Row,
    people,
    row,
    stretch,
    text,
)
from tests.habits import needs

SAMPLES = Path(__file__).resolve().parents[4] / "shared" / "data" / "hhar_sample"


Windows = dict[tuple[str, ...], list[list[float]]]


def windows_of(rows: Sequence[Row], *columns: int) -> Windows:
    """What the module promises, the slow way: x of each window by the row's text in `columns`."""
    found: Windows = defaultdict(list)
    for _, own in itertools.groupby(sorted(rows, key=PAIR), PAIR):
        stretches: list[list[Row]] = []
        before = None
        for values in own:
            if (
                before is None
                or values[9] != before[9]
                or abs(int(values[1]) - int(before[1])) > LONGEST_GAP_MS
            ):
                stretches.append([])
            stretches[-1].append(values)
            before = values
        for one in stretches:
            x = np.array([values[3] for values in one], np.float32)
            windows = cut(x[:, None], Cutting(STEPS, STRIDE, 0))[..., 0]
            found[tuple(one[0][column] for column in columns)] += windows.tolist()
    return found


PAIR = operator.itemgetter(6, 8)
"""The person and the device of a row."""


def test_windows_stay_within_one_person_device_activity_and_time(desk: Desk) -> None:
    """Rows of several devices alternate, across the chunks that a file is read in."""
    random = np.random.default_rng(3)
    queues = []
    for user, device in itertools.product("abcde", ("s3_1", "nexus4_2", "s3mini_1")):
        own = []
        ms = 0
        for activity in random.choice(ACTIVITIES, 12):
            for step in random.choice([0, 5, 10, 900, 1000], random.integers(5, 90)):
                ms += int(step)
                own.append(row(user, device, str(activity), ms, float(random.normal())))
            ms += int(random.choice([5, 1001, 60_000]))
        queues.append(own)
    rows = []
    while queues:
        own = queues[random.integers(len(queues))]
        count = random.integers(1, 50)
        rows += own[:count]
        del own[:count]
        queues = [queue for queue in queues if queue]
    expected = windows_of(rows, 6, 9)

    dataset = desk.read(NAME, text(rows), **CUT)

    assert dataset.rows == sum(map(len, expected.values())) > 300
    got: Windows = defaultdict(list)
    names = dataset.held_out.groups
    targets = zip(dataset.subjects(), dataset.classes(), strict=True)
    for window, (group, label) in zip(dataset.windows()[:, :, 0], targets, strict=True):
        got[names[group], dataset.labels[label]].append(window.tolist())
    assert {key: sorted(windows) for key, windows in got.items()} == {
        key: sorted(windows) for key, windows in expected.items() if windows
    }


def test_every_spelling_of_a_name_is_one_person_and_their_number_costs_no_memory(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hhar_windows, "MOST_PAIRS", 20)
    rows = people()
    expected = windows_of(rows)[()]
    for place, values in enumerate(rows):
        values[6] += " " * (place % 97)
        values[9] = " " * (place % 89) + values[9]
    cutter = WindowCutter(HharFile(desk.write(NAME, text(rows))), Cutting(STEPS, STRIDE, 0))
    assert sum(len(piece.windows) for piece in cutter.pieces()) == len(expected)
    assert len(cutter._codes) <= 20


@pytest.fixture
def dataset(desk: Desk) -> Dataset:
    return desk.read(NAME, text(people()), **CUT)


def test_a_clock_that_jumps_back_ends_a_window_too(desk: Desk, dataset: Dataset) -> None:
    jumps = [stretch("a", "s3_1", "sit", STEPS - 1, ms) for ms in (50_000, 20_000)]
    rows = people() + jumps[0] + jumps[1]
    assert desk.read(NAME, text(rows), **CUT).rows == dataset.rows


def test_whole_people_are_the_test_and_their_numbers_have_names(dataset: Dataset) -> None:
    train, test = np.split(dataset.subjects(), [dataset.train_windows])
    assert set(train) | set(test) == set(range(5))
    assert not set(train) & set(test)
    note = "5 users (a, b, c, d, e), 2 devices (nexus4_2, s3_1)"
    assert dataset.held_out == HeldOut("user", tuple("abcde"), "", note)
    assert dataset.held_out.lines() == (note, "groups by user: 0 a, 1 b, 2 c, 3 d, 4 e")
    has(dataset, labels=("sit", "walk"), input_shape=(STEPS, 3), holds_windows=True)
    assert open_prepared(dataset.folder).held_out == dataset.held_out


def test_groups_may_be_devices(desk: Desk) -> None:
    dataset = desk.read(NAME, text(people()), **CUT, groups="device")
    assert dataset.held_out.groups == ("nexus4_2", "s3_1")
    train, test = np.split(dataset.subjects(), [dataset.train_windows])
    assert (len(set(train)), len(set(test))) == (1, 1)


def test_a_random_split_is_named_a_leak_and_names_no_groups(desk: Desk) -> None:
    dataset = desk.read(NAME, text(people("a")), **CUT, split="random")
    has(dataset, test_windows=round(0.2 * dataset.rows), subjects=[-1] * dataset.rows)
    assert "overlap" in dataset.held_out.leak
    assert dataset.held_out.lines()[-1].startswith("LEAK: ")
    assert json.loads((dataset.folder / MANIFEST).read_text())["held_out"]["by"] == "window"


def test_the_class_null_may_be_left_out(desk: Desk, dataset: Dataset) -> None:
    nulls = [one for user in "abcde" for one in stretch(user, "s3_1", "null", 60, 10**6)]
    found = desk.read(NAME, text(people() + nulls), **CUT)
    assert found.labels == ("sit", "walk", "null")
    without = desk.read(NAME, **CUT, null_class=False)
    has(without, labels=("sit", "walk"), rows=dataset.rows)


@pytest.mark.parametrize(
    "head",
    [
        "",
        HEAD,
        ",".join(f'"{name}"' for name in COLUMNS),
        HEAD.lower(),
        HEAD.upper().replace(",", ";"),
        ",".join(COLUMNS[::-1]),
    ],
)
def test_the_line_of_names_may_be_missing_quoted_in_other_letters_or_in_another_order(
    desk: Desk, dataset: Dataset, head: str
) -> None:
    rows = people()
    if head.startswith(COLUMNS[-1]):
        rows = [values[::-1] for values in rows]
    content = text(rows, head)
    if ";" in head:
        content = content.replace(",", ";")
    name = "mine.csv" if head else NAME
    assert desk.read(name, content, **CUT).sha256 == dataset.sha256


@pytest.mark.parametrize(
    ("head", "said"),
    [
        (HEAD.replace("Index", "X"), "expected x once, got it twice but for its case; remove one"),
        (HEAD.replace("Index", "x"), "rename it, it is also column"),
    ],
)
def test_a_name_that_comes_twice_is_refused(desk: Desk, head: str, said: str) -> None:
    desk.refuses(said, "mine.csv", text(people(), head), **CUT)


def test_the_zip_as_published_is_read_where_it_lies(desk: Desk, dataset: Dataset) -> None:
    content = text(people()).encode()
    names = ("Phones_gyroscope.csv", NAME, "readme.txt")
    files = {f"Activity recognition exp/{name}": content for name in names}
    path = desk.write("Activity recognition exp.zip", files)
    assert desk.read(path, **CUT).sha256 == dataset.sha256
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(NAME, content)
    changed = path.read_bytes().replace(b",0.25,", b",0.26,", 1)
    desk.refuses(f"{NAME}: damaged ... ; fetch it again", path.name, changed, **CUT)


@pytest.mark.parametrize(("factor", "unit"), [(0.001, "s"), (1000, "us"), (10**6, "ns")])
def test_arrival_times_in_another_unit_are_refused(desk: Desk, factor: float, unit: str) -> None:
    rows = people()
    for values in rows:
        values[1] = f"{int(values[1]) * factor:.10g}"
    said = f"Arrival_Time: readings lie ... ms apart; are the times in {unit}?"
    desk.refuses(said, NAME, text(rows), **CUT)


def test_a_folder_that_holds_the_file_is_enough(desk: Desk) -> None:
    path = desk.write(NAME, text(people()))
    found = desk.source(".")
    assert (found.kind, found.path) == ("hhar", path)


@wrong("hhar")
def test_a_wrong_line_is_named_and_nothing_is_left(desk: Desk, row: dict[str, Any]) -> None:
    rows = people()
    rows[4][row["column"]] = row["text"]
    desk.refuses(f"{NAME}{row['says']}", NAME, text(rows), **CUT)


SITTING = stretch("a", "s3_1", "sit", 60)


@pytest.mark.parametrize(
    ("rows", "options", "said"),
    [
        ([], {}, "expected a line of column names and rows below it, got neither"),
        (
            people("a"),
            {},
            "at least 2 users, so that one can be held out for the test, got 'a' alone; add"
            " recordings, set jobs.train.data.groups to device, or set jobs.train.data.split to"
            " random",
        ),
        (
            SITTING + stretch("a", "s3_1", "walk", 60),
            {},
            "add recordings, set jobs.train.data.split to random, which is a leak",
        ),
        (
            SITTING[: STEPS - 1],
            {},
            f"expected a stretch of {STEPS} readings of one person, device and activity, the"
            f" longest has {STEPS - 1}; set jobs.train.data.window_steps to that or less",
        ),
        (SITTING, {"split": "random"}, "at least 2 classes, got 'sit' alone"),
    ],
)
def test_what_cannot_be_split_says_what_to_do(
    desk: Desk, rows: list[Row], options: dict[str, Any], said: str
) -> None:
    desk.refuses(said, NAME, text(rows), **CUT, **options)


def test_unknown_groups_are_refused(desk: Desk) -> None:
    with refused("groups and split: expected user or device and groups or random"):
        desk.read(NAME, text(people()), groups="model")


def test_a_class_of_held_out_people_alone_is_refused(desk: Desk, dataset: Dataset) -> None:
    held_out = dataset.held_out.groups[int(dataset.subjects()[-1])]
    said = f"'bike' has windows of the users {held_out} alone, who are held out"
    rows = people() + stretch(held_out, "s3_1", "bike", 60, 10**6)
    desk.refuses(said, NAME, text(rows), **CUT)


def test_missing_columns_are_named(desk: Desk) -> None:
    said = "Watch_gyroscope.csv:1: expected the columns Index, ... got no Device among"
    content = "Index,Arrival_Time,x,y,z,User,gt\n0,1,1,1,1,a,sit\n"
    desk.refuses(said, "Watch_gyroscope.csv", content)


def test_the_published_samples(desk: Desk) -> None:
    """One with a line of names, one without; both of one person and one phone."""
    if not SAMPLES.is_dir():
        needs.skip("the samples of HHAR are not in ../shared/data")
    path = SAMPLES / "paipradeep" / NAME
    asked = {"window_steps": 200, "window_stride": 20}
    desk.refuses("at least 2 users", path, **asked)
    has(desk.read(path, **asked, split="random"), labels=ACTIVITIES, rows=257)
    said = "at least 2 classes, got 'stand' alone"
    desk.refuses(said, SAMPLES / "rdavilao" / NAME, split="random")
