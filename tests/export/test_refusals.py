"""What cannot be exported is one line with the remedy, before TensorFlow is loaded."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import ExitCode
from cluster.export import __main__ as command
from cluster.export import wish
from deploy.common.project import ROOT, environment_for_any_folder


@pytest.fixture(autouse=True)
def signals_as_before() -> Iterator[None]:
    import signal

    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def result(folder: Path, *, status: str = "done", job: str = "train", model: bool = True, **more: Any) -> Path:
    settings = {"seed": 0, "data": {"source": None, "window_steps": 16, "window_stride": 8}}
    content = {"job": job, "status": status, "settings": settings, "dataset": {"source": "synthetic"}, **more}
    folder.mkdir(parents=True)
    (folder / "result.json").write_text(json.dumps(content))
    if model:
        (folder / "model").mkdir()
        (folder / "model" / "model.json").write_text("{}")
    return folder


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert command.main(["--quiet", *words]) == ExitCode.BAD_USAGE
    said = capsys.readouterr().err
    assert said.count("\n") == 1, said
    return said


def test_no_such_run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = refused(capsys, "--run=yesterday", "--to=onnx", "--out=walking")
    assert "--run: expected the folder of a run, or its name below ./runs, found no 'yesterday'" in said


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ({"status": "cancelled"}, "expected a finished run, got one that is cancelled"),
        ({"job": "cv", "model": False}, "a run of cv without a model: export a training"),
        ({"settings": {"seed": 0}}, "expected the result of a training, got no key 'data'"),
        ({"dataset": None}, "expected the result of a training"),
        ({"settings": {"seed": "x", "data": {"source": 1, "window_steps": 1, "window_stride": 1}}}, "seed"),
    ],
)
def test_a_run_that_is_none_to_export(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], made: dict[str, Any], words: str
) -> None:
    run = result(tmp_path / "runs" / "20260101T000000Z-train", **made)
    assert words in refused(capsys, f"--run={run}", "--to=onnx", f"--out={tmp_path / 'walking'}")
    assert not (tmp_path / "walking").exists()


def test_a_run_without_a_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, f"--run={tmp_path}", "--to=onnx", f"--out={tmp_path / 'walking'}")
    assert "found no result.json in it: resume it first" in said


def test_a_damaged_model(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from cluster.export import graph

    monkeypatch.setattr(graph, "one_thread", lambda: None)
    run = result(tmp_path / "run")
    said = refused(capsys, f"--run={run}", "--to=onnx", f"--out={tmp_path / 'walking'}")
    assert "expected a model that a training run left" in said


@pytest.mark.parametrize(
    ("to", "remedy"), [("onyx", "did you mean onnx?"), ("saved-model", "did you mean savedmodel?"), ("zip", "choose ")]
)
def test_an_unknown_format(tmp_path: Path, capsys: pytest.CaptureFixture[str], to: str, remedy: str) -> None:
    said = refused(capsys, "--run=any", f"--to={to}", f"--out={tmp_path / 'walking'}")
    assert f"unknown format '{to}'" in said
    assert remedy in said


@pytest.mark.parametrize("to", ["keras", "savedmodel"])
def test_int8_where_there_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str], to: str) -> None:
    said = refused(capsys, "--run=any", f"--to={to}", "--quantize=dynamic", f"--out={tmp_path / 'walking'}")
    assert f"--quantize: expected --to onnx or litert, got --to {to}" in said
    said = refused(capsys, "--run=any", "--to=onnx", "--quantize=full", f"--out={tmp_path / 'walking'}")
    assert "--quantize: expected dynamic, or no --quantize, got 'full'" in said


@pytest.mark.parametrize(("to", "package"), [("onnx", "onnxruntime"), ("litert", "ai-edge-litert")])
def test_a_missing_package(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, to: str, package: str
) -> None:
    monkeypatch.setattr(wish, "find_spec", lambda module: None)
    said = refused(capsys, "--run=any", f"--to={to}", f"--out={tmp_path / 'walking'}")
    assert "install them with `pip install" in said
    assert package in said


def test_a_place_that_is_taken_or_nowhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    taken, file, link = tmp_path / "taken", tmp_path / "file", tmp_path / "link"
    taken.mkdir()
    (taken / "mine").touch()
    file.touch()
    link.symlink_to(taken)
    for out, words in (
        (taken, "holds something"),
        (file, "which is something else"),
        (link, "which is something else"),
        (tmp_path / "no" / "such", "make it first"),
    ):
        assert words in refused(capsys, "--run=any", "--to=onnx", f"--out={out}")
    assert [path.name for path in taken.iterdir()] == ["mine"]


def test_a_place_that_may_not_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if os.geteuid() == 0:
        parent = Path("/proc")  # where even root makes nothing
    else:
        parent = tmp_path / "closed"
        parent.mkdir(mode=0o500)
    said = refused(capsys, "--run=any", "--to=onnx", f"--out={parent / 'walking'}")
    assert "cannot be written" in said


def test_tensorflow_is_not_loaded_to_refuse(tmp_path: Path) -> None:
    words = (
        "import sys; from cluster.export.__main__ import main; "
        f"code = main(['--run={tmp_path}', '--to=onnx', '--out={tmp_path / 'walking'}']); "
        "print(code, 'tensorflow' in sys.modules)"
    )
    found = subprocess.run(
        [sys.executable, "-c", words], cwd=ROOT, env=environment_for_any_folder(), capture_output=True, text=True
    )
    assert found.stdout.split() == ["2", "False"], found.stderr
