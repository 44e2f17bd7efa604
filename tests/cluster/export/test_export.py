"""A run becomes an export whole, or leaves nothing; what it says of itself is true."""

import errno
import json
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.export import __main__ as command
from cluster.export import export, graph
from cluster.export.examples import examples_of
from cluster.export.request import ExportRequest, read_result
from cluster.jobs.train_result import load
from core.data.dataset import Array
from core.data.signals import Signals
from core.exported import open_model, read_description
from core.exported.description import NAME, Description
from core.exported.verified import LARGEST_DIFFERENCE
from core.ground.errors import ExitCode, UsageError
from core.ground.locks import locked_folder
from tests.cluster.apps.trees import write_tree
from tests.cluster.export import runs
from tests.cluster.jobs.cluster import own_recordings
from tests.tables import table


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runs.trained(tmp_path_factory.mktemp("run"))


@pytest.fixture(autouse=True)
def this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "cache").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # Another test of this process may have begun to compute: TensorFlow's threads are what they are
    # then.
    monkeypatch.setattr(graph, "one_thread", lambda: None)
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


Export = Callable[..., str]


@pytest.fixture
def exported(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Export:
    """Exports into `walking`, answers with what is said; one that fails leaves nothing."""

    def export(*words: str, to: str = "onnx", code: int = ExitCode.DONE) -> str:
        given = [f"--run={run}", f"--out={tmp_path / 'walking'}", f"--to={to}", "--quiet", *words]
        assert command.main(given) == code
        said = capsys.readouterr()
        if code == ExitCode.DONE:
            return said.out
        assert left(tmp_path) == []
        return said.err

    return export


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != "cache")


def test_an_export_says_what_it_takes_and_answers_like_the_run(
    run: Path, tmp_path: Path, exported: Export
) -> None:
    said = json.loads(exported("--json"))
    description = read_description(tmp_path / "walking")
    model = load(run / "model")
    result = json.loads((run / "result.json").read_bytes())
    assert (said["sha256"], said["path"]) == (description.sha256, str(tmp_path / "walking"))
    assert sorted(path.name for path in (tmp_path / "walking").iterdir()) == [NAME, "model.onnx"]
    assert description.run.folder == run.name
    assert description.run.parameters_sha256 == result["parameters_sha256"]
    assert description.labels == model.labels
    taken = description.input
    assert (taken.samples, taken.channels, taken.unit) == (16, (), "")
    stated = (description.sampling_hz, description.filters, description.data.licence)
    assert stated == (None, None, None)
    mean = np.array(description.standardization.mean, np.float32)
    np.testing.assert_array_equal(mean, model.standardization.mean)
    check = description.check
    assert (check.windows, check.same_labels) == (30, 1.0)
    assert check.greatest_difference <= LARGEST_DIFFERENCE
    assert check.accuracy_tensorflow == pytest.approx(result["final"]["accuracy"])
    assert 0 < description.timing.median_ms <= description.timing.p99_ms
    windows = np.random.default_rng(0).normal(size=(7, 16, 3)).astype(np.float32)
    found = open_model(tmp_path / "walking").logits(windows)
    np.testing.assert_allclose(found, graph.traced(model)(windows), rtol=0, atol=1e-4)


def test_a_person_reads_three_lines_at_most(
    tmp_path: Path, exported: Export, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    first, last = exported("--out=empty", to="savedmodel").splitlines()
    assert first.startswith("checked: 30 test windows, answers within ")
    assert last.startswith(f"export: {tmp_path}/empty/saved_model (")


def test_one_that_answers_otherwise_is_refused_and_leaves_nothing(
    exported: Export, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(*given: Any) -> Any:
        values = graph_answering(*given)
        return lambda windows: values(windows) + np.float32(0.01)

    graph_answering = graph.answering
    monkeypatch.setattr(graph, "answering", wrong)
    said = exported(code=ExitCode.FAILED)
    assert "expected logits within 0.0001 of TensorFlow's, got a difference of 0.01" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(("size", "apart", "found"), table("cluster/export/rows", "differences"))
def test_a_difference_is_one_of_the_largest_logit(size: float, apart: float, found: float) -> None:
    """Float32 has seven digits: logits of a hundred differ by more than those of one."""
    logits = np.full((3, 4), -size)
    compared = export.compare(
        lambda _: logits, lambda _: logits + apart, np.zeros((3, 16, 3)), None, lambda *_: None
    )
    assert compared.greatest == pytest.approx(found)


def test_int8_that_loses_labels_is_refused_and_leaves_nothing(
    exported: Export, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "LARGEST_LOSS", -1.0)
    assert "leave --quantize out" in exported("--quantize=dynamic", code=ExitCode.FAILED)


def test_what_a_killed_export_left_goes_with_the_next_one(tmp_path: Path, exported: Export) -> None:
    dead, alive = (f".walking.{os.uname().nodename}@1-{each}.partial" for each in "01")
    write_tree(tmp_path, {f"{folder}/model.onnx": "half" for folder in (dead, alive)})
    with locked_folder(tmp_path / alive):
        exported()
    assert left(tmp_path) == [alive, "walking"]
    assert read_description(tmp_path / "walking").quantized is None


def test_a_full_disk_leaves_nothing_and_names_the_remedy(
    exported: Export, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(export, "measured", full)
    assert exported(code=ExitCode.FAILED).endswith(
        "cannot be written (No space left on device): free some space, or name another folder with"
        " --out\n"
    )


def test_an_interrupt_leaves_nothing(
    tmp_path: Path, exported: Export, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> Any:
        assert [name for name in left(tmp_path) if name.endswith(".partial")]
        raise KeyboardInterrupt

    monkeypatch.setattr(export, "latency_of", interrupted)
    exported(code=ExitCode.CANCELLED)


def test_recordings_other_than_those_of_the_training_are_refused(
    tmp_path: Path, exported: Export
) -> None:
    other = own_recordings(
        tmp_path / "cache/other.npz", classes=3, channels=3, steps=16, train=80, test=30
    )
    said = exported(f"--data={other}", code=ExitCode.BAD_USAGE)
    assert "other windows than" in said


def exported_with(run: Path, request: ExportRequest, **changes: Any) -> Description:
    """The export of the run as if its data set were changed so."""
    trained = read_result(run)
    model = load(run / "model")
    examples = examples_of(trained, model, None, lambda *_: None)
    changed = replace(examples, dataset=replace(examples.dataset, **changes))
    return export.export(request, trained, model, changed, lambda *_: None)


def test_what_the_recordings_say_of_themselves_is_in_the_export(run: Path, tmp_path: Path) -> None:
    signals = Signals(("up", "left", "on"), ("g", "g", "V"), 25.0, "causal")
    made = exported_with(run, ExportRequest("onnx", False, tmp_path / "said"), signals=signals)
    assert (made.sampling_hz, made.filters) == (25.0, "causal")
    taken = made.input
    assert (taken.channels, taken.units) == (signals.channels, signals.units)
    assert taken.unit == "g, g, V"


@pytest.mark.parametrize("to", ["onnx", "litert"])
def test_a_class_at_each_position_is_refused_where_readers_expect_one(
    run: Path, tmp_path: Path, to: str
) -> None:
    with pytest.raises(
        UsageError, match=r"a class at each of 10 positions, .* use --to savedmodel or keras"
    ):
        exported_with(
            run,
            ExportRequest(to, False, tmp_path / "tags"),
            targets=Array("targets.int32", "int32", (10,)),
        )
    assert left(tmp_path) == []


@pytest.mark.parametrize(
    ("kind", "says"),
    table("cluster/export/rows", "licences"),
)
def test_the_licence_of_a_known_set_is_what_uci_and_the_set_say(
    kind: str, says: list[bool]
) -> None:
    licence = export.LICENCES.get(kind, "")
    terms = ("under CC BY 4.0", "Any commercial use is prohibited")
    assert [term in licence for term in terms] == says
