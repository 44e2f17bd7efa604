"""The folder a job leaves, and the newest model among several."""

import json
import logging
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cluster.atomic_write import atomic_write
from cluster.errors import ClusterError, UsageError
from cluster.jobs.run_folder import (
    SPEAKER,
    RunFolder,
    RunLog,
    keep_calibration,
    latest_calibration,
    newest_model,
    newest_unfinished,
)
from tests.jobs.cluster import PROJECT

FULL_DISK = """
import resource, sys
from pathlib import Path
from cluster.errors import ClusterError
from cluster.atomic_write import atomic_write
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    atomic_write(Path(sys.argv[1]), b"x" * 100_000)
except ClusterError as problem:
    print(problem)
    sys.exit(problem.exit_code)
"""


def test_two_runs_in_one_second_get_two_folders(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    taken = [f"{now + timedelta(seconds=k):%Y%m%dT%H%M%SZ}-pi" for k in range(30)]
    for name in taken:
        (tmp_path / name).mkdir()
    first, second = RunFolder(tmp_path, "pi"), RunFolder(tmp_path, "pi")
    assert first.path != second.path
    assert {first.path.name.rpartition("-")[0], second.path.name.rpartition("-")[0]} <= set(taken)


def test_a_file_that_does_not_fit_leaves_the_old_one_and_no_part_of_the_new(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    atomic_write(path, b"old\n")
    child = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(path)], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert child.returncode == 1, child.stderr
    assert str(path) in child.stdout
    assert child.stdout.count("\n") == 1
    assert path.read_bytes() == b"old\n"
    assert [file.name for file in tmp_path.iterdir()] == ["result.json"]


def test_numbers_json_has_no_word_for_become_null(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, "train")
    folder.write_result({"a": float("nan"), "b": [1.5, float("inf")], "c": {"d": (-float("inf"), 2)}, "e": None})
    assert json.loads(folder.result_path.read_text()) == {"a": None, "b": [1.5, None], "c": {"d": [None, 2]}, "e": None}


def test_a_clock_that_was_set_back_does_not_change_which_run_is_the_newest(tmp_path: Path) -> None:
    def broken_off(name: str) -> Path:
        run = RunFolder(tmp_path, "train").path.rename(tmp_path / name)  # as if the clock had said so
        (run / "coordinator.log").touch()
        (run / "model").mkdir()
        (run / "model" / "model.json").touch()
        return run

    of_an_earlier_version = tmp_path / "20990101T000000Z-train"
    of_an_earlier_version.mkdir()
    (of_an_earlier_version / "coordinator.log").touch()
    assert newest_unfinished(tmp_path) == of_an_earlier_version
    broken_off("20260102T000000Z-train")
    after = broken_off("20260101T000000Z-train")
    assert newest_unfinished(tmp_path) == after
    assert newest_model(tmp_path) == after
    (after / "sequence").write_bytes(b"\xff" * 100)
    assert newest_unfinished(tmp_path).name == "20260102T000000Z-train"


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
        (tmp_path / name / "model").mkdir(parents=True)
        (tmp_path / name / "model" / "model.json").write_text("{}")
    (tmp_path / "20260102T000000Z-train").mkdir()
    (tmp_path / "20260102T000000Z-train" / "result.json").write_text("{}")
    assert newest_model(tmp_path).name == "20260101T000001Z-train-10"


def test_calibration_comes_back_and_damage_is_none(tmp_path: Path) -> None:
    assert latest_calibration(tmp_path, "lab") is None
    keep_calibration(tmp_path, "lab", {"worker:0": 2.5e7})
    assert latest_calibration(tmp_path, "lab") == {"worker:0": 2.5e7}
    assert latest_calibration(tmp_path, "other") is None
    (stored,) = tmp_path.iterdir()
    for damage in ("", "[1]", '{"samples_per_second": 3}', '{"samples_per_second": {"worker:0": "fast"}}'):
        stored.write_text(damage)
        assert latest_calibration(tmp_path, "lab") is None
