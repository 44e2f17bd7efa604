"""What is left of a cluster, what became of a deployment, in which order nodes come."""

import json
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.converge.apply import StepFailure
from deploy.converge.quorum import minimum_workers, missing
from deploy.converge.recap import Again, Recap, to_do_again
from deploy.converge.systemd import batches, restart_script, stop_script
from tests.deploy.converge.pi import thesis

INVENTORY = thesis()
WORKERS = [f"rpi{number:02d}" for number in range(1, 17) if number != 11]
FAILURE = StepFailure("rpi02", "code", "install it", "sh x", 71, ("one", "the disk is full"), "free some")


def test_half_of_the_workers_is_enough() -> None:
    assert minimum_workers(INVENTORY) == 8
    assert missing(INVENTORY, []) == ""
    assert missing(INVENTORY, WORKERS[:8]) == ""
    assert missing(INVENTORY, WORKERS[:9]) == ("7 of 16 workers are left, 8 are needed (`deployment.minimum_workers`)")


def test_the_inventory_may_want_more_of_them() -> None:
    strict = thesis("deployment.minimum_workers=16")
    assert "15 of 16 workers are left, 16 are needed" in missing(strict, ["rpi01"])


def test_some_nodes_cannot_be_missing() -> None:
    reason = missing(INVENTORY, ["rpi11"])
    assert reason == "ps:0 is on rpi11; coordinator:0 is on rpi11; rpi11 is the storage server"


def recap() -> Recap:
    made = Recap("start", "thesis", ("rpi01", "rpi02", "rpi03"))
    made.add("rpi01", "prepare", 1, 0.5)
    made.add("rpi01", "prepare", 1, 0.75)
    made.add("rpi02", "prepare", 1, 0.5)
    made.add("rpi01", "code", 1, 2.0)
    made.failures["rpi02"] = FAILURE
    made.seconds = 12.4
    return made


def test_a_recap_has_a_row_for_each_node() -> None:
    assert recap().rows() == [
        ("rpi01", "2 1.2 s", "1 2.0 s", "changed"),
        ("rpi02", "1 0.5 s", "failed", "failed"),
        ("rpi03", "-", "-", "ok"),
    ]
    assert recap().summary() == "3 nodes: 1 ok, 1 changed, 1 failed; 4 changed in 12 s"
    assert recap().failed == ("rpi02",)


def test_a_failure_s_line_says_where_what_and_what_to_do() -> None:
    assert FAILURE.line == "rpi02: install it (exit code 71): one | the disk is full; free some"
    assert StepFailure("a", "facts", "look", "", None, (), "").line == "a: look"


def test_a_recap_is_kept_and_tells_the_next_run_whom_to_try_again(tmp_path: Path) -> None:
    folder = tmp_path / "deployments"
    assert to_do_again(folder) == Again()
    made = recap()
    made.complete = True
    path = made.write(folder, "20261121T224200Z-start")
    kept = json.loads(path.read_text())
    assert (kept["action"], kept["cluster"], kept["changed"], kept["complete"]) == ("start", "thesis", 4, True)
    assert kept["nodes"]["rpi01"]["phases"]["prepare"] == {"changed": 2, "seconds": 1.25}
    assert kept["nodes"]["rpi02"]["failure"]["return_code"] == 71
    assert kept["nodes"]["rpi03"] == {"state": "ok", "phases": {}, "failure": None}
    assert to_do_again(folder) == Again(("rpi02",))
    Recap("start", "thesis", ("rpi02",), complete=True).write(folder, "20261121T224300Z-start")
    assert to_do_again(folder) == Again()


def test_one_that_was_cut_short_is_tried_again_on_all_its_nodes(tmp_path: Path) -> None:
    recap().write(tmp_path, "20261121T224200Z-start")
    assert to_do_again(tmp_path) == Again(("rpi01", "rpi02", "rpi03"), cut_short=True)
    of_one = Recap("start", "thesis", ("rpi02", "rpi11"), chosen=("rpi02",))
    of_one.write(tmp_path, "20261121T224300Z-start")
    assert to_do_again(tmp_path) == Again(("rpi02",), cut_short=True)  # the storage server has its code


@pytest.mark.parametrize(
    ("notes", "again"), [([], Again(("b",))), (["roles were not started: ..."], Again(("a", "b"), cut_short=True))]
)
def test_recaps_of_earlier_versions_are_understood(tmp_path: Path, notes: list[str], again: Again) -> None:
    nodes = {"a": {"state": "ok"}, "b": {"state": "failed"}}
    (tmp_path / "x.json").write_text(json.dumps({"notes": notes, "nodes": nodes}))
    assert to_do_again(tmp_path) == again


@pytest.mark.parametrize(
    "content", ["", "[]", '{"nodes": 3}', '{"nodes": {"a": 1}}', "{}", '{"nodes": {}, "notes": 1}']
)
def test_a_damaged_recap_names_nobody(tmp_path: Path, content: str) -> None:
    (tmp_path / "x.json").write_text(content)
    assert to_do_again(tmp_path).nodes == ()


@given(names=st.lists(st.text(min_size=1), unique=True), serial=st.integers(0, 9))
def test_batches_hold_everyone_once_in_order(names: list[str], serial: int) -> None:
    made = list(batches(names, serial))
    assert [name for batch in made for name in batch] == names
    assert all(0 < len(batch) <= (serial or max(1, len(names))) for batch in made)
    assert all(len(batch) == serial for batch in made[:-1]) or serial == 0


@pytest.mark.parametrize("script", [stop_script(), restart_script(["a b'.service", "c.service"])])
def test_scripts_of_day_two_are_a_shell_s(script: str) -> None:
    assert subprocess.run(["sh", "-n"], input=script, text=True, check=False).returncode == 0
