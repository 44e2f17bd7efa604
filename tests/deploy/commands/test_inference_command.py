"""`fab job inference`: what it refuses, what it reads of the workers' files, its table, and all of it here."""

import json
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import ClusterError
from deploy.commands import inference
from deploy.commands.inference import gathered, table
from deploy.common.project import ROOT
from deploy.jobs import timing_program
from tests.deploy.typed import Fab
from tests.programs.test_examples import here, typed

__all__ = ["here"]

ROW: dict[str, Any] = {
    "name": "onnx float32", "runtime": "onnxruntime 1.32", "bytes": 31_000, "median_ms": 0.5, "p99_ms": 1.0,
    "process_mb": 30.0, "model_and_runtime_mb": 10.0, "first_answer_seconds": 0.1, "greatest_difference": 0.0,
    "same_labels": 1.0, "windows": 40,
}  # fmt: skip
TENSORFLOW = {**ROW, "name": "tensorflow", "bytes": None, "median_ms": 2.0}
PI: dict[str, Any] = {
    "model": "Raspberry Pi 4 Model B Rev 1.4",
    "architecture": "aarch64",
    "cores": 4,
    "memory_mb": 3900,
}


def left(folder: Path, content: Any) -> Path:
    """The run of a program on one worker that has left `content`."""
    (folder / "files/worker-0").mkdir(parents=True)
    (folder / "result.json").write_text(json.dumps({"tasks": {"worker:0": {"node": "pi4"}}}))
    if content is not None:
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / "files/worker-0/inference.json").write_text(text)
    return folder


def test_the_table_has_each_runtime_of_each_worker(tmp_path: Path) -> None:
    found = gathered(left(tmp_path, {"machine": PI, "rows": [ROW, TENSORFLOW]}), "a-train")
    assert found["run"] == "a-train"
    head, first, last = table(found)
    assert head.split() == ["worker", "node", "machine", "runtime", "ms", "p99", "ms", "over", "MB", "kB"]
    assert first.split()[:3] == ["worker:0", "pi4", "Raspberry"]
    assert first.split()[-6:] == ["0.50", "1.00", "1.0", "x", "30", "31"]
    assert last.split()[-5:] == ["2.00", "1.00", "4.0", "x", "30"]


@pytest.mark.parametrize(
    "content",
    [None, "no json", "[" * 100_000, {"machine": PI}, {"machine": PI, "rows": [{"name": "x"}]}, [],
     {"machine": PI | {"model": ["x"]}, "rows": [ROW]}, {"machine": PI, "rows": ["x" * (1 << 20)]}],
)  # fmt: skip
def test_what_a_worker_has_not_measured_is_one_line(tmp_path: Path, content: Any) -> None:
    with pytest.raises(ClusterError, match=r"inference\.json: expected what worker:0 measured, got") as caught:
        gathered(left(tmp_path, content), "a-train")
    assert "\n" not in str(caught.value)


def test_a_run_without_a_model_is_refused(fab: Fab, tmp_path: Path) -> None:
    assert "--run: expected the folder of a finished training" in fab("job inference").stderr
    refused = fab(f"job inference --run {tmp_path}")
    assert (refused.code, "which has a folder `model`" in refused.stderr) == (2, True)
    assert "--rounds: expected a whole number" in fab(f"job inference --run {tmp_path} --rounds 0").stderr


def test_an_export_that_this_network_has_not_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(command: list[str], **_: Any) -> "subprocess.CompletedProcess[str]":
        out = next(word.partition("=")[2] for word in command if word.startswith("--out="))
        if "--to=litert" in command:
            return subprocess.CompletedProcess(command, 2, "", "litert: not for this network\n")
        Path(out).mkdir()
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    inference.exported(tmp_path, tmp_path / "exports", None)
    assert sorted(path.name for path in (tmp_path / "exports").iterdir()) == ["onnx", "onnx-dynamic"]
    assert "litert is left out: litert: not for this network" in capsys.readouterr().err


def test_a_run_without_any_export_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **_: Any) -> "subprocess.CompletedProcess[str]":
        return subprocess.CompletedProcess(command, 2, "", "an app's own network\n")

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(ClusterError, match="it cannot be exported: an app's own network"):
        inference.exported(tmp_path, tmp_path / "exports", None)


def test_the_runtimes_are_those_of_the_exports() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert set(timing_program._PACKAGES) <= set(project["project"]["optional-dependencies"]["export"])


@pytest.mark.long
@pytest.mark.timeout(300)
def test_every_worker_times_every_export(here: Path) -> None:
    trained = typed(here, "job", "train", "--mode", "single", "--epochs", "1", "--data", "synthetic", "--hidden", "8")
    assert trained.returncode == 0, trained.stderr
    (run,) = here.glob("runs/*-train")
    words = ("job", "inference", "--run", str(run), "--rounds", "1", "--data", "synthetic")
    ended = typed(here, *words, "--json")
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert list(found["workers"]) == ["worker:0", "worker:1"]
    for worker in found["workers"].values():
        assert [row["name"] for row in worker["rows"]] == [
            *("onnx float32", "onnx dynamic", "litert float32", "litert dynamic", "tensorflow")
        ]
        assert all(row["same_labels"] >= 0.9 for row in worker["rows"])
