"""The picture of a run that is over, from the files in its folder alone."""

import json
import time
from pathlib import Path
from typing import Any, Literal

import pytest

from cluster.pages.facts import ended_root
from cluster.pages.files import run_of
from cluster.pages.report import report
from cluster.pages.rows import tiles_of
from core.ground.errors import UsageError
from core.status.events import Ended, Resumed, UpdatesCounted
from core.status.history import NAME
from core.status.past_run import read_run
from tests.core.status.history_files import kept
from tests.core.status.pictures import shows
from tests.core.status.played_run import STARTED, whole
from tests.core.status.stories import told
from tests.tables import table

CASES = table("core/status/past_runs")


@pytest.mark.parametrize("case", CASES["runs"].values(), ids=CASES["runs"])
def test_a_folder_makes_this_picture(case: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / case.get("name", "run")
    folder.mkdir()
    if "played" in case:
        *_, (played, seconds, _) = told(case["played"])
        kept(played, folder, seconds)
    if "history" in case:
        (folder / NAME).write_text(case["history"])
    if "result" in case:
        (folder / "result.json").write_text(json.dumps(case["result"]))
    shows(read_run(folder), **case["shows"])


def test_a_result_of_a_coordinator_that_another_one_followed_is_none(tmp_path: Path) -> None:
    result = {**CASES["result"], "status": "failed", "reason": "ps:0 is gone"}
    (tmp_path / "result.json").write_text(json.dumps(result))
    played = whole()
    played.emit(Ended("failed", "ps:0 is gone"), 61.0)
    played.emit(Resumed(61.0), time.time() + 60.0 - STARTED.timestamp())
    kept(played, tmp_path, 120.0)
    assert "was interrupted" in str(read_run(tmp_path).reason)


@pytest.mark.parametrize("ended", [None, "cancelled"])
def test_a_run_that_was_resumed_after_its_result_shows_its_state_s_updates(
    tmp_path: Path, ended: Literal["cancelled"] | None
) -> None:
    updates = {"applied": 100, "scheduled": 1000, "duplicates_dropped": 2, "rolled_back": 0}
    result = {**CASES["result"], "status": "cancelled", "updates": updates, "resumptions": 0}
    (tmp_path / "result.json").write_text(json.dumps(result))
    played = whole()
    played.emit(UpdatesCounted(100, 2, 0, 0), 60.0)
    played.emit(Ended("cancelled", "Ctrl-C"), 61.0)
    later = time.time() + 60.0 - STARTED.timestamp()
    played.emit(Resumed(61.0), later)
    played.emit(UpdatesCounted(900, 7, 3, 1), later + 1.0)
    if ended is not None:
        played.emit(Ended(ended, "Ctrl-C"), later + 2.0)
    kept(played, tmp_path, later + 3.0)
    run = run_of(tmp_path)
    shows(run.view, state=ended or "failed", train={"updates_applied": 900, "resumptions": 1})
    assert run.result == {}
    shown = {tile.name: tile.value for tile in tiles_of("survived", ended_root(run))}
    assert shown["updates applied"] == "900"
    assert (shown["sent twice"], shown["rolled back"], shown["resumptions"]) == ("7", "3", "1")


def test_a_figure_that_no_fraction_holds_is_left_out(tmp_path: Path) -> None:
    forged = json.dumps({**CASES["result"], "final": {"loss": 2.0, "huge": 10**400}})
    (tmp_path / "result.json").write_text(forged)
    assert read_run(tmp_path).figures == {"test": {"loss": 2.0}}


@pytest.mark.parametrize("key", CASES["result"])
def test_a_result_of_other_types_is_none(key: str, tmp_path: Path) -> None:
    (tmp_path / "coordinator.log").touch()
    (tmp_path / "environment.json").write_text('{"memory_bytes": "x"}')
    for other in ([1], {"a": [1], "mean": 1}, "x", 1e999, 10**400):
        (tmp_path / "result.json").write_text(json.dumps({**CASES["result"], key: other}))
        report(run_of(tmp_path))


def test_a_folder_without_a_run(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected the folder of a run"):
        read_run(tmp_path)
    (tmp_path / "coordinator.log").touch()
    assert read_run(tmp_path).state == "failed"
