"""`experiments.inference`: exports in turn, without TensorFlow."""

import json
import os
import sys
from pathlib import Path

import pytest

from core.errors import UsageError
from core.exported.timed.turns import contestants
from tests.ran import ran
from tests.recognise.exports import export
from tests.recognise.guard import guarded


def test_exports_are_measured_in_turn_where_no_tensorflow_is(tmp_path: Path) -> None:
    folders = [export(tmp_path / name) for name in ("one", "other")]
    flags = ["--run", str(tmp_path), "--quick", "--windows", "5", "--json"]
    words = [sys.executable, "-m", "experiments.inference"]
    done = ran(*words, *folders, *flags, environment=guarded(tmp_path / "guard"))
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


def test_exports_of_different_models_are_refused(tmp_path: Path) -> None:
    folders = [export(tmp_path / "nine"), export(tmp_path / "three", channels=("x", "y", "z"))]
    with pytest.raises(
        UsageError, match="three: expected an export of 20260101T000000Z-train as the first"
    ):
        contestants(folders, None, 1)
