"""`benchmarks.inference`: a row for each export, and exports that no ratio compares."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.inference.__main__ import described
from core.errors import UsageError
from core.exported import read
from core.exported.description import Description
from deploy.common.project import ROOT
from tests.recognise.exports import export


def test_exports_of_one_run_are_named_and_of_another_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [export(tmp_path / name) for name in ("first", "again")]
    assert list(described(folders)) == ["onnx float32", "onnx float32 (again)"]

    def of_another_run(folder: Path) -> Description:
        found = read(folder)
        if folder == folders[0]:
            return found
        return replace(found, run=replace(found.run, parameters_sha256="other"))

    monkeypatch.setattr("benchmarks.inference.__main__.read", of_another_run)
    with pytest.raises(UsageError, match=r"again: expected an export of .* as the first"):
        described(folders)


def test_each_export_has_a_row(tmp_path: Path) -> None:
    words = [f"--export={export(tmp_path / name)}" for name in ("first", "again")]
    command = [sys.executable, "-m", "benchmarks.inference", "--smoke", "--json", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    said = json.loads(line)
    assert said.keys() == {"name", "machine", "rows", "summary"}
    assert [row["name"] for row in said["rows"]] == ["onnx float32", "onnx float32 (again)"]
    assert all(row["windows"] == 40 and row["median_ms"] > 0 for row in said["rows"])
    assert all(row["same_labels"] == 1.0 for row in said["rows"])
    assert said["summary"]["over_first"].keys() == {"onnx float32 (again)"}
