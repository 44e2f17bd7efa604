"""What is left of a cluster, what became of a deployment, in which order nodes come."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.converge.apply import StepFailure
from deploy.converge.deployment import minimum_workers, too_few
from deploy.converge.recap import Again, Recap, to_do_again
from deploy.converge.systemd import batches
from tests.deploy.converge.pi import thesis
from tests.deploy.converge.tables import rows

INVENTORY = thesis()
FAILURE = StepFailure(
    "rpi02", "code", "install it", ("one", "the disk is full"), "free some", "sh x", 71
)
BEGUN = "20261121T224200Z-start"
LATER = "20261121T224300Z-start"


@rows("left_workers", "lost", "reason")
def test_half_of_the_workers_is_enough_and_some_nodes_cannot_be_missing(
    lost: list[str], reason: str
) -> None:
    assert too_few(INVENTORY, lost) == reason


def test_the_inventory_may_want_more_of_them() -> None:
    assert minimum_workers(INVENTORY) == 8
    strict = thesis("deployment.minimum_workers=16")
    assert "15 of 16 workers are left, 16 are needed" in too_few(strict, ["rpi01"])


@pytest.fixture
def recap() -> Recap:
    made = Recap("start", "thesis", ("rpi01", "rpi02", "rpi03"))
    made.add("rpi01", "prepare", 1, 0.5)
    made.add("rpi01", "prepare", 1, 0.75)
    made.add("rpi02", "prepare", 1, 0.5)
    made.add("rpi01", "code", 1, 2.0)
    made.failures["rpi02"] = FAILURE
    made.seconds = 12.4
    return made


def test_a_recap_has_a_row_for_each_node(recap: Recap) -> None:
    assert recap.rows() == [
        ("rpi01", "2 1.2 s", "1 2.0 s", "changed"),
        ("rpi02", "1 0.5 s", "failed", "failed"),
        ("rpi03", "-", "-", "ok"),
    ]
    assert recap.summary() == "3 nodes: 1 ok, 1 changed, 1 failed; 4 changed in 12 s"
    assert recap.failed == ("rpi02",)


def test_a_failure_s_line_says_where_what_and_what_to_do() -> None:
    assert FAILURE.line == "rpi02: install it (exit code 71): one | the disk is full; free some"
    assert StepFailure("a", "facts", "look", ()).line == "a: look"


def test_a_recap_is_kept_and_tells_the_next_run_whom_to_try_again(
    tmp_path: Path, recap: Recap
) -> None:
    assert to_do_again(tmp_path / "deployments") == Again()
    recap.complete = True
    kept = json.loads(recap.write(tmp_path, BEGUN).read_text())
    about = {"action": "start", "cluster": "thesis", "changed": 4, "complete": True}
    assert about.items() <= kept.items()
    nodes = kept["nodes"]
    assert nodes["rpi01"]["phases"]["prepare"] == {"changed": 2, "seconds": 1.25}
    assert nodes["rpi02"]["failure"]["return_code"] == 71
    assert nodes["rpi03"] == {"state": "ok", "phases": {}, "failure": None}
    assert to_do_again(tmp_path) == Again(("rpi02",))
    Recap("start", "thesis", ("rpi02",), complete=True).write(tmp_path, LATER)
    assert to_do_again(tmp_path) == Again()


def test_one_that_was_cut_short_is_tried_again_on_all_its_nodes(
    tmp_path: Path, recap: Recap
) -> None:
    recap.write(tmp_path, BEGUN)
    assert to_do_again(tmp_path) == Again(("rpi01", "rpi02", "rpi03"), cut_short=True)
    of_one = Recap("start", "thesis", ("rpi02", "rpi11"), chosen=("rpi02",))
    of_one.write(tmp_path, LATER)  # the storage server has its code
    assert to_do_again(tmp_path) == Again(("rpi02",), cut_short=True)


@rows("earlier_recaps", "notes", "names", "cut_short")
def test_recaps_of_earlier_versions_are_understood(
    tmp_path: Path, notes: list[str], names: tuple[str, ...], cut_short: bool
) -> None:
    nodes = {"a": {"state": "ok"}, "b": {"state": "failed"}}
    (tmp_path / "x.json").write_text(json.dumps({"notes": notes, "nodes": nodes}))
    assert to_do_again(tmp_path) == Again(names, cut_short)


@rows("damaged_recaps", "content")
def test_a_damaged_recap_names_nobody(tmp_path: Path, content: str) -> None:
    (tmp_path / "x.json").write_text(content)
    assert to_do_again(tmp_path).nodes == ()


@given(names=st.lists(st.text(min_size=1), unique=True), serial=st.integers(0, 9))
def test_batches_hold_everyone_once_in_order(names: list[str], serial: int) -> None:
    made = list(batches(names, serial))
    assert [name for batch in made for name in batch] == names
    assert all(0 < len(batch) <= (serial or max(1, len(names))) for batch in made)
    assert all(len(batch) == serial for batch in made[:-1]) or serial == 0
