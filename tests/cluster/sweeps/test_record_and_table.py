import csv
import json
import statistics
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from cluster.pages.files import FILE, Axis, RunRecord, SweepRecord, read_sweep
from cluster.sweeps.progress import (
    Advance,
    Epoch,
    MemberOutput,
    csv_of,
    message_of,
    seconds_left,
    short_names,
    text_table,
)
from core.ground.errors import UsageError
from tests.tables import table

HIDDEN = "jobs.train.model.hidden"


RECORD = SweepRecord(
    "s",
    "x-sweep",
    "running",
    "node",
    (1, 2),
    (Axis(HIDDEN, (8, 16)),),
    tuple(RunRecord(**run) for run in table("cluster/sweeps/rows", "runs")),
)


def test_a_record_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    RECORD.write(tmp_path)
    assert read_sweep(tmp_path) == RECORD
    content = json.loads((tmp_path / FILE).read_text())
    assert content["schema"] == 1
    assert content["axes"] == [{"key": HIDDEN, "values": [8, 16]}]
    assert content["runs"][0] == asdict(RECORD.runs[0])
    assert content["runs"][0].keys() == set(KEYS.split())
    assert RECORD.counts() == table("cluster/sweeps/rows", "counts")


KEYS = "id settings seed state final seconds node folder error selected"


@pytest.mark.parametrize(
    ("change", "says"),
    table("cluster/sweeps/rows", "foreign records"),
)
def test_a_foreign_record_is_refused_by_name(
    tmp_path: Path, change: dict[str, object], says: str
) -> None:
    (tmp_path / FILE).write_text(json.dumps({**RECORD.to_json(), **change}))
    with pytest.raises(UsageError, match=f"expected what `fab sweep` writes.*{says}"):
        read_sweep(tmp_path)


def test_no_record(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected the folder of a sweep, found no"):
        read_sweep(tmp_path)


def test_the_table_as_csv_and_at_a_terminal_is_over_the_finished_runs_of_a_setting() -> None:
    one, two = csv.DictReader(csv_of(RECORD).splitlines())
    assert one[HIDDEN] == "8"
    assert float(one["accuracy_mean"]) == pytest.approx(0.6)
    assert float(one["accuracy_deviation"]) == pytest.approx(statistics.stdev([0.5, 0.7]))
    assert (two["runs"], two["finished"], two["accuracy_deviation"]) == ("2", "1", "")
    assert "f1_macro_mean" not in one
    assert text_table(RECORD) == table("cluster/sweeps/rows", "at a terminal")
    backwards = replace(RECORD, runs=tuple(reversed(RECORD.runs)))
    assert list(csv.DictReader(csv_of(backwards).splitlines())) == [two, one]


def test_a_text_in_the_csv_is_no_formula() -> None:
    run = RunRecord("0001", {"jobs.train.data.source": "=1+1"}, 0, "finished", {"loss": 1.0})
    assert csv_of(replace(RECORD, runs=(run,))).splitlines()[1].startswith("'=1+1,")


def test_short_names_tell_keys_apart() -> None:
    found = [short_names([HIDDEN, "jobs.train.epochs"]), short_names(["a.b.name", "a.c.name"])]
    assert [[*names.values()] for names in found] == [["hidden", "epochs"], ["b.name", "c.name"]]


def test_lines_of_a_run_are_messages_and_words() -> None:
    lines = MemberOutput()
    found = lines.add(b'hello\n{"pscluster_run": {"stage": "train", "done": 3, "to')
    found += lines.add(
        b'tal": 6}}\n{"pscluster_run": {"epoch": 1, "validation": {"accuracy": 0.5}}}\nwor'
    )
    assert found == [Advance("train", 3, 6), Epoch(1, {"accuracy": 0.5})]
    huge = b'{"pscluster_run": {"epoch": 1, "validation": {"a": NaN, "b": 1%b}}}\n' % (b"0" * 400)
    assert lines.add(b"\n" + huge) == [Epoch(1, {})]
    lines.add(b"hello\nwor")
    assert lines.last == "hello"
    lines.close()
    assert lines.last == "wor"


@pytest.mark.parametrize(
    "line",
    [
        b"pscluster_run",
        b'{"pscluster_run": 3}',
        b'{"pscluster_run": {"epoch": -1, "validation": {}}}',
        b'{"pscluster_run": {"stage": "x", "done": 1e99, "total": 3}}',
        b'{"pscluster_run": {"epoch": 1}}',
    ],
)
def test_a_line_that_is_no_message(line: bytes) -> None:
    assert message_of(line) is None


def test_the_time_that_is_left() -> None:
    waiting = [RunRecord(str(at), {}, 0) for at in range(4)]
    running = RunRecord("9", {}, 0, "running")
    assert seconds_left([*waiting, running], 2, {"9": (3.0, None)}) is None
    half = {"9": (10.0, Advance("train", 5, 10))}
    assert seconds_left([*waiting, running], 2, half) == pytest.approx((4 * 20 + 10) / 2)
    assert seconds_left([running], 2, half) == pytest.approx(10.0)
    assert seconds_left([RunRecord("1", {}, 0, "finished")], 2, {}) == 0.0
