"""`benchmarks.inference`: exports in turn, without TensorFlow."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.errors import UsageError
from cluster.exported.timed.turns import contestants, summarize
from deploy.common.project import ROOT
from tests.recognise.exports import export
from tests.recognise.guard import guarded


def test_exports_are_measured_in_turn_where_no_tensorflow_is(tmp_path: Path) -> None:
    folders = [export(tmp_path / name) for name in ("one", "other")]
    words = [*map(str, folders), "--run", str(tmp_path), "--quick", "--windows", "5", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.inference", *words],
        cwd=ROOT, env=guarded(tmp_path / "guard"), capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "tensorflow is not installed" in done.stderr
    found = json.loads(done.stdout)
    assert found["name"] == "inference"
    assert [row["name"] for row in found["rows"]] == ["onnx float32 (one)", "onnx float32 (other)"]
    for row in found["rows"]:
        assert row["runtime"].startswith("onnxruntime ")
        assert row["bytes"] == os.path.getsize(folders[0] / "model.onnx")
        assert (row["windows"], row["greatest_difference"], row["same_labels"]) == (15, 0.0, 1.0)
        assert 0 < row["median_ms"] <= row["p99_ms"]
        assert row["process_mb"] > 1
    assert list(found["summary"]["over_first"]) == ["onnx float32 (other)"]


def test_a_ratio_is_of_rounds_that_stood_side_by_side() -> None:
    rows = [{"name": "a", "round_medians_ms": [1.0, 10.0, 2.0]}, {"name": "b", "round_medians_ms": [3.0, 30.0, 8.0]}]
    assert summarize(rows) == {"first": "a", "over_first": {"b": 3.0}}


def test_exports_of_different_models_are_refused(tmp_path: Path) -> None:
    folders = [export(tmp_path / "nine"), export(tmp_path / "three", channels=("x", "y", "z"))]
    with pytest.raises(UsageError, match="three: expected an export of 20260101T000000Z-train as the first"):
        contestants(folders, None, 1)
