"""The kind `hhar`, which its format reads: windows within one person, device and activity."""

import hashlib
import itertools
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.synthetic_hhar import NULL
from core.data import Dataset
from tests.core.data.desk import Desk, has, wrong
from tests.core.data.hhar_rows import (
    CUT,
    HEAD,
    NAME,
    STEPS,
    STRIDE,
    people,
    row,
    stretch,
    text,
)
from tests.habits import needs
from tests.tables import table

COLUMNS = HEAD.split(",")
ACTIVITIES = ("bike", "sit", "stand", "walk", "stairsup", "stairsdown", NULL)
SAMPLES = Path(__file__).resolve().parents[4] / "shared" / "data" / "hhar_sample"


def test_windows_stay_within_one_person_device_activity_and_time(desk: Desk) -> None:
    """Rows of several devices alternate, across the chunks that a file is read in.

    The x of the rows of a stretch counts up from a hundred of its own.
    """
    random = np.random.default_rng(3)
    expected: list[tuple[float, str, str]] = []
    queues = []
    beginnings = itertools.count(0, 100)
    for user, device in itertools.product("abcde", ("s3_1", "nexus4_2", "s3mini_1")):
        own = []
        ms = 0
        for activity, pause in itertools.product(random.permutation(ACTIVITIES), (1001, 5)):
            steps = random.choice([0, 5, 10, 900, 1000], random.integers(5, 90))
            begin = next(beginnings)
            for x, step in enumerate(steps, begin):
                ms += int(step)
                own.append(row(user, device, str(activity), ms, x))
            ms += pause
            last = begin + len(steps) - STEPS
            expected += [(x, user, str(activity)) for x in range(begin, last + 1, STRIDE)]
        queues.append(own)
    rows = []
    while queues:
        own = queues[random.integers(len(queues))]
        count = random.integers(1, 50)
        rows += own[:count]
        del own[:count]
        queues = [queue for queue in queues if queue]

    dataset = desk.read(NAME, text(rows), **CUT)

    windows = dataset.windows()[:, :, 0]
    assert (np.diff(windows, axis=1) == 1).all()
    users = np.array(dataset.held_out.groups)[dataset.subjects()]
    activities = np.array(dataset.labels)[dataset.classes()]
    assert sorted(zip(windows[:, 0], users, activities, strict=True)) == sorted(expected)
    assert dataset.rows > 300


@pytest.fixture
def dataset(desk: Desk) -> Dataset:
    return desk.read(NAME, text(people()), **CUT)


def test_a_clock_that_jumps_back_ends_a_window_too(desk: Desk, dataset: Dataset) -> None:
    jumps = [stretch("a", "s3_1", "sit", STEPS - 1, ms) for ms in (50_000, 20_000)]
    rows = people() + jumps[0] + jumps[1]
    assert desk.read(NAME, text(rows), **CUT).rows == dataset.rows


def test_a_negative_zero_stays_one(desk: Desk) -> None:
    rows = people()
    rows[0][3] = "-0"
    assert np.signbit(desk.read(NAME, text(rows), **CUT).windows()).any()


def test_groups_may_be_devices(desk: Desk) -> None:
    dataset = desk.read(NAME, text(people()), **CUT, groups="device")
    assert dataset.held_out.groups == ("nexus4_2", "s3_1")
    train, test = np.split(dataset.subjects(), [dataset.train_windows])
    assert (len(set(train)), len(set(test))) == (1, 1)


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


def test_the_zip_as_published_is_read_where_it_lies(desk: Desk, dataset: Dataset) -> None:
    content = text(people()).encode()
    names = ("Phones_gyroscope.csv", NAME, "readme.txt")
    files = {f"Activity recognition exp/{name}": content for name in names}
    path = desk.write("Activity recognition exp.zip", files)
    assert desk.read(path, **CUT).sha256 == dataset.sha256
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(NAME, content)
    changed = path.read_bytes().replace(b",0.25,", b",0.26,", 1)
    desk.refuses("Bad CRC-32 ... fetch the file again", path.name, changed, **CUT)


@pytest.mark.parametrize(("factor", "unit"), [(0.001, "s"), (1000, "us"), (10**6, "ns")])
def test_arrival_times_in_another_unit_are_refused(desk: Desk, factor: float, unit: str) -> None:
    rows = people()
    for values in rows:
        values[1] = f"{int(values[1]) * factor:.10g}"
    said = f"readings lie ... ms apart; are the times in {unit}?"
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


@pytest.mark.parametrize("row", table("core/data/tables", "digests of hhar"))
def test_published_readings_give_the_same_windows_to_the_bit(desk: Desk, row: list[Any]) -> None:
    if not SAMPLES.is_dir():
        needs.skip("the samples of HHAR are not in ../shared/data")
    name, steps, stride, null, digest = row
    cut = {"window_steps": steps, "window_stride": stride, "null_class": null}
    dataset = desk.read(SAMPLES / "paipradeep" / name, **cut, split="random")
    has(dataset, labels=ACTIVITIES if null else ACTIVITIES[:-1])
    found = hashlib.sha256(dataset.windows().tobytes()).hexdigest()
    assert found.startswith(digest)
