"""`fab job inference`: what it refuses, what it reads of the workers' files, its table, and all of
it here."""

import json
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from cluster.apps.copy import keep, kept
from cluster.apps.files import look
from cluster.apps.ownership import VARIABLE, as_variable, remember
from core.errors import ClusterError, UsageError
from deploy.commands import inference
from deploy.commands.inference import gathered, table
from deploy.common.project import ROOT
from deploy.jobs import timing_program
from tests.cluster.apps.trees import write_app, write_tree
from tests.cluster.programs.test_examples import here
from tests.deploy.typed import as_process

__all__ = ["here"]

ROW: dict[str, Any] = {
    "name": "onnx float32",
    "runtime": "onnxruntime 1.32",
    "bytes": 31_000,
    "median_ms": 0.5,
    "p99_ms": 1.0,
    "process_mb": 30.0,
    "model_and_runtime_mb": 10.0,
    "first_answer_seconds": 0.1,
    "greatest_difference": 0.0,
    "same_labels": 1.0,
    "windows": 40,
}
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
        (folder / "files/worker-0/inference.json").write_text(content)
    return folder


def test_the_table_has_each_runtime_of_each_worker(tmp_path: Path) -> None:
    measured = json.dumps({"machine": PI, "rows": [ROW, TENSORFLOW]})
    found = gathered(left(tmp_path, measured), "a-train")
    assert found["run"] == "a-train"
    head, *rows = (" ".join(line.split()) for line in table(found))
    assert head == "worker node machine runtime ms p99 ms over MB kB"
    assert rows[0].startswith("worker:0 pi4 Raspberry")
    assert rows[0].endswith("0.50 1.00 1.0 x 30 31")
    assert rows[1].endswith("2.00 1.00 4.0 x 30")


@pytest.mark.parametrize(
    "content",
    [
        None,
        "no json",
        "[" * 100_000,
        json.dumps({"machine": PI}),
        json.dumps({"machine": PI, "rows": [{"name": "x"}]}),
        "[]",
        json.dumps({"machine": PI | {"model": ["x"]}, "rows": [ROW]}),
        json.dumps({"machine": PI, "rows": ["x" * (1 << 20)]}),
    ],
    ids=lambda content: str(content)[:40],
)
def test_what_a_worker_has_not_measured_is_one_line(tmp_path: Path, content: str | None) -> None:
    with pytest.raises(
        ClusterError, match=r"^[^\n]*inference\.json: expected what worker:0 measured, got[^\n]*$"
    ):
        gathered(left(tmp_path, content), "a-train")


def test_a_result_without_tasks_is_one_line(tmp_path: Path) -> None:
    run = left(tmp_path, "[]")
    (run / "result.json").write_text('{"tasks": [1]}')
    with pytest.raises(ClusterError, match="expected the result of a program"):
        gathered(run, "a-train")


class Exports:
    """Stands for the processes of exports, of which these formats are `refused`."""

    def __init__(self, *refused: str) -> None:
        self._refused = {f"--to={name}" for name in refused}

    def run(self, command: list[str], **_: Any) -> "subprocess.CompletedProcess[str]":
        if self._refused.intersection(command):
            return subprocess.CompletedProcess(command, 2, "", "not for this network\n")
        (out,) = [word.removeprefix("--out=") for word in command if word.startswith("--out=")]
        Path(out).mkdir()
        return subprocess.CompletedProcess(command, 0, "", "")


def test_an_export_that_this_network_has_not_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(subprocess, "run", Exports("litert").run)
    inference.exported(tmp_path, tmp_path / "exports", None)
    made = sorted(path.name for path in (tmp_path / "exports").iterdir())
    assert made == ["onnx", "onnx-dynamic"]
    assert "litert is left out: not for this network" in capsys.readouterr().err


def test_a_run_without_any_export_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "run", Exports("litert", "onnx").run)
    with pytest.raises(ClusterError, match="it cannot be exported: not for this network"):
        inference.exported(tmp_path, tmp_path / "exports", None)


def test_the_runtimes_are_those_of_the_exports() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert set(timing_program._PACKAGES) <= set(
        project["project"]["optional-dependencies"]["export"]
    )


def test_the_app_of_a_run_travels_once_it_is_one_s_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv(VARIABLE, raising=False)
    run = write_tree(tmp_path / "a-train", {"model/model.json": "{}"})
    app = look(write_app(tmp_path, "width = 3\n"))
    keep(app, run)
    with pytest.raises(UsageError, match=f"--trust-app {app.digest}"):
        timing_program.written(tmp_path / "refused", run)
    remember(app.digest, "trusted")
    text = timing_program.written(tmp_path / "made", run).read_text()
    assert f"environ.update({as_variable([app.digest])})" in text
    sent = kept(tmp_path / "made/run")
    assert sent is not None
    assert sent.digest == app.digest


@pytest.mark.long
@pytest.mark.timeout(300)
def test_every_worker_times_every_export(here: Path) -> None:
    small = "--mode single --epochs 1 --data synthetic --hidden 8"
    as_process(f"job train {small}", here).says()
    (run,) = here.glob("runs/*-train")
    ended = as_process(f"job inference --run {run} --rounds 1 --data synthetic --json", here)
    workers = ended.json()["workers"]
    assert list(workers) == ["worker:0", "worker:1"]
    names = ["onnx float32", "onnx dynamic", "litert float32", "litert dynamic", "tensorflow"]
    for worker in workers.values():
        assert [row["name"] for row in worker["rows"]] == names
        assert all(row["same_labels"] >= 0.9 for row in worker["rows"])
