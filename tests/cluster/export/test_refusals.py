"""What cannot be exported is one line with the remedy, before TensorFlow is loaded."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.export import __main__ as command
from cluster.export import request
from core.ground.errors import ExitCode, UsageError
from tests.cluster.apps.trees import write_tree
from tests.ran import python
from tests.tables import table

Refused = Callable[..., str]


@pytest.fixture
def refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Refused]:
    """Exports in a folder of its own; answers with the one line that is said."""
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGTERM)

    def export(*words: str, run: str | Path = "any", to: str = "onnx", out: object = "out") -> str:
        given = [f"--run={run}", f"--to={to}", f"--out={out}", "--quiet", *words]
        assert command.main(given) == ExitCode.BAD_USAGE
        said = capsys.readouterr().err
        assert said.count("\n") == 1, said
        assert not (tmp_path / "out").exists()
        return said

    yield export
    signal.signal(signal.SIGTERM, before)


RESULT = table("cluster/export/rows", "result")


def test_no_such_run(refused: Refused) -> None:
    said = refused(run="yesterday")
    assert (
        "--run: expected the folder of a run, or its name below ./runs, found no 'yesterday'"
        in said
    )


@pytest.mark.parametrize(
    ("changed", "words"),
    table("cluster/export/rows", "no run to export"),
)
def test_a_run_that_is_none_to_export(
    tmp_path: Path, refused: Refused, changed: dict[str, Any], words: str
) -> None:
    files = {"result.json": json.dumps({**RESULT, **changed}), "model/model.json": "{}"}
    if "job" in changed:
        del files["model/model.json"]
    assert words in refused(run=write_tree(tmp_path / "runs/20260101T000000Z-train", files))


def test_a_run_without_a_result(tmp_path: Path, refused: Refused) -> None:
    assert "found no result.json in it: resume it first" in refused(run=tmp_path)


def test_a_damaged_model(tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    from cluster.export import graph

    monkeypatch.setattr(graph, "one_thread", lambda: None)
    files = {"result.json": json.dumps(RESULT), "model/model.json": "{}"}
    said = refused(run=write_tree(tmp_path / "run", files))
    assert "expected a model that a training run left" in said


@pytest.mark.parametrize(
    ("to", "remedy"),
    table("cluster/export/rows", "formats"),
)
def test_an_unknown_format(refused: Refused, to: str, remedy: str) -> None:
    said = refused(to=to)
    assert f"unknown format '{to}'" in said
    assert remedy in said


@pytest.mark.parametrize(
    ("to", "quantize", "words"),
    table("cluster/export/rows", "int8"),
)
def test_int8_where_there_is_none(refused: Refused, to: str, quantize: str, words: str) -> None:
    assert f"--quantize: {words}" in refused(f"--quantize={quantize}", to=to)


@pytest.mark.parametrize(("to", "package"), [("onnx", "onnxruntime"), ("litert", "ai-edge-litert")])
def test_a_missing_package(
    refused: Refused, monkeypatch: pytest.MonkeyPatch, to: str, package: str
) -> None:
    monkeypatch.setattr(request, "find_spec", lambda module: None)
    said = refused(to=to)
    assert "install them with `pip install" in said
    assert package in said


def test_a_place_that_is_taken_or_nowhere(tmp_path: Path, refused: Refused) -> None:
    write_tree(tmp_path, {"taken/mine": "", "file": ""})
    (tmp_path / "link").symlink_to("taken")
    for out, words in table("cluster/export/rows", "places").items():
        assert words in refused(out=out)
    assert [path.name for path in (tmp_path / "taken").iterdir()] == ["mine"]


def test_a_place_that_may_not_be_written(tmp_path: Path, refused: Refused) -> None:
    if os.geteuid() == 0:
        parent = Path("/proc")  # where even root makes nothing
    else:
        parent = tmp_path / "closed"
        parent.mkdir(mode=0o500)
    assert "cannot be written" in refused(out=parent / "walking")


def test_tensorflow_is_not_loaded_to_refuse(tmp_path: Path) -> None:
    words = (
        "import sys; from cluster.export.__main__ import main; "
        f"code = main(['--run={tmp_path}', '--to=onnx', '--out={tmp_path / 'walking'}']); "
        "print(code, 'tensorflow' in sys.modules)"
    )
    assert python("-c", words).split() == ["2", "False"]


def test_recordings_without_a_test_part(monkeypatch: pytest.MonkeyPatch) -> None:
    from cluster.export import examples

    dataset = SimpleNamespace(source="mine.npz", sha256="same", test_windows=0)
    trained: Any = SimpleNamespace(named="mine.npz", options={})
    model: Any = SimpleNamespace(network=None, dataset_sha256="same")
    monkeypatch.setattr(examples, "find_source", lambda *_: SimpleNamespace(kind="npz"))
    monkeypatch.setattr(examples, "_prepared", lambda *_: dataset)
    with pytest.raises(UsageError, match=r"mine\.npz: has no test windows"):
        examples.examples_of(trained, model, None, lambda *_: None)
