"""The folder a job leaves, and the newest model among several."""

import json
import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cluster.jobs.busy import keep_calibration, latest_calibration
from cluster.jobs.run_folder import (
    SPEAKER,
    RunFolder,
    RunLog,
    newest_model,
    newest_unfinished,
    unfinished,
)
from core.ground.errors import ClusterError, UsageError


def test_two_runs_in_one_second_get_two_folders(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    taken = {f"{now + timedelta(seconds=k):%Y%m%dT%H%M%SZ}-pi" for k in range(30)}
    for name in taken:
        (tmp_path / name).mkdir()
    names = {RunFolder(tmp_path, "pi").path.name for _ in range(2)}
    assert len(names - taken) == 2
    assert {name.rpartition("-")[0] for name in names} <= taken


def test_numbers_json_has_no_word_for_become_null(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, "train")
    folder.write_result(
        {"a": float("nan"), "b": [1.5, float("inf")], "c": {"d": (-float("inf"), 2)}, "e": None}
    )
    assert json.loads(folder.result_path.read_text()) == {
        "a": None,
        "b": [1.5, None],
        "c": {"d": [None, 2]},
        "e": None,
    }


def left(path: Path, *files: str) -> Path:
    """A run with these files."""
    for name in files:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).touch()
    return path


MODEL = "model/model.json"


def test_a_clock_that_was_set_back_does_not_change_which_run_is_the_newest(tmp_path: Path) -> None:
    def broken_off(name: str) -> Path:
        run = RunFolder(tmp_path, "train").path.rename(tmp_path / name)  # as if the clock said so
        return left(run, "coordinator.log", MODEL)

    of_an_earlier_version = left(tmp_path / "20990101T000000Z-train", "coordinator.log")
    assert newest_unfinished(tmp_path) == of_an_earlier_version
    before = broken_off("20260102T000000Z-train")
    after = broken_off("20260101T000000Z-train")
    assert newest_unfinished(tmp_path) == newest_model(tmp_path) == after
    (after / "sequence").write_bytes(b"\xff" * 100)
    assert newest_unfinished(tmp_path) == before


def test_a_full_disk_costs_the_log_alone(tmp_path: Path) -> None:
    path = tmp_path / "20260101T000000Z-pi" / "coordinator.log"
    path.parent.mkdir()
    path.symlink_to("/dev/full")
    with RunLog(path):
        logging.getLogger("cluster.jobs").info("a line that no disk takes")
    assert SPEAKER.run == ""


def test_runs_that_cannot_be_made_are_one_error(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(ClusterError, match="cannot be made"):
        RunFolder(tmp_path / "runs", "pi")


def test_newest_model_passes_over_runs_without_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="fab job train"):
        newest_model(tmp_path / "nothing")
    for name in ("20260101T000000Z-train", "20260101T000001Z-train-2", "20260101T000001Z-train-10"):
        last = left(tmp_path / name, MODEL)
    left(tmp_path / "20260102T000000Z-train", "result.json")
    assert newest_model(tmp_path) == last


@pytest.mark.parametrize(
    "damage",
    ["", "[1]", '{"samples_per_second": 3}', '{"samples_per_second": {"worker:0": "fast"}}'],
)
def test_calibration_comes_back_and_damage_is_none(tmp_path: Path, damage: str) -> None:
    assert latest_calibration(tmp_path, "lab") is None
    keep_calibration(tmp_path, "lab", {"worker:0": 2.5e7})
    assert latest_calibration(tmp_path, "lab") == {"worker:0": 2.5e7}
    assert latest_calibration(tmp_path, "other") is None
    (stored,) = tmp_path.iterdir()
    stored.write_text(damage)
    assert latest_calibration(tmp_path, "lab") is None


def test_a_folder_without_a_log_is_no_run_to_resume(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"found no coordinator\.log"):
        unfinished(left(tmp_path / "20990101T000000Z-train", MODEL))
