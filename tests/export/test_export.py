"""A run becomes an export whole, or leaves nothing; what it says of itself is true."""

import errno
import json
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.data.dataset import Array
from cluster.data.filters import CHANNELS
from cluster.data.source import PROJECT_ROOT, find_source
from cluster.errors import ExitCode, UsageError
from cluster.export import __main__ as command
from cluster.export import check, export, graph, known_sets
from cluster.export.examples import examples_of
from cluster.export.trained_run import read_result
from cluster.export.wish import Wish
from cluster.exported import open_model, read
from cluster.exported.description import NAME
from cluster.exported.verified import LARGEST_DIFFERENCE
from cluster.jobs.train_result import load
from deploy.common.project import ROOT, environment_for_any_folder
from tests.export import runs
from tests.habits import needs
from tests.jobs.cluster import own_recordings


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runs.trained(tmp_path_factory.mktemp("run"))


@pytest.fixture(autouse=True)
def this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "cache").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # Another test of this process may have begun to compute: TensorFlow's threads are what they are then.
    monkeypatch.setattr(graph, "one_thread", lambda: None)
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def exported(run: Path, out: Path, *words: str) -> int:
    return command.main([f"--run={run}", f"--out={out}", "--quiet", *words])


def test_an_export_says_what_it_takes_and_answers_like_the_run(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exported(run, tmp_path / "walking", "--to=onnx", "--json") == ExitCode.DONE
    said = json.loads(capsys.readouterr().out)
    description, model = read(tmp_path / "walking"), load(run / "model")
    assert said["sha256"] == description.sha256
    assert said["path"] == str(tmp_path / "walking")
    assert sorted(path.name for path in (tmp_path / "walking").iterdir()) == [NAME, "model.onnx"]
    assert description.run.folder == run.name
    assert description.run.parameters_sha256 == json.loads((run / "result.json").read_bytes())["parameters_sha256"]
    assert description.labels == model.labels
    assert (description.input.samples, description.input.channels) == (16, ("x", "y", "z"))
    assert (description.sampling_hz, description.filters, description.data.licence) == (None, None, None)
    np.testing.assert_array_equal(np.array(description.standardization.mean, np.float32), model.standardization.mean)
    assert description.check.windows == 30
    assert description.check.greatest_difference <= LARGEST_DIFFERENCE
    assert description.check.same_labels == 1.0
    final = json.loads((run / "result.json").read_bytes())["final"]
    assert description.check.accuracy_tensorflow == pytest.approx(final["accuracy"])
    assert 0 < description.timing.median_ms <= description.timing.p99_ms
    windows = np.random.default_rng(0).normal(size=(7, 16, 3)).astype(np.float32)
    expected = np.asarray(graph.traced(model)(windows))
    np.testing.assert_allclose(open_model(tmp_path / "walking").logits(windows), expected, rtol=0, atol=1e-4)


def test_a_person_reads_three_lines_at_most(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    assert exported(run, Path("empty"), "--to=savedmodel") == ExitCode.DONE
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("checked: 30 test windows, logits within ")
    assert last.startswith(f"export: {tmp_path / 'empty' / 'saved_model'} (")


def left(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name != "cache"]


def test_one_that_answers_otherwise_is_refused_and_leaves_nothing(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def wrong(*given: Any) -> Any:
        values = graph_answering(*given)
        return lambda windows: values(windows) + np.float32(0.01)

    graph_answering = graph.answering
    monkeypatch.setattr(graph, "answering", wrong)
    assert exported(run, tmp_path / "wrong", "--to=onnx") == ExitCode.FAILED
    said = capsys.readouterr().err
    assert "expected logits within 0.0001 of TensorFlow's, got a difference of 0.01" in said
    assert said.count("\n") == 1
    assert left(tmp_path) == []


def test_int8_that_loses_labels_is_refused_and_leaves_nothing(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(check, "LARGEST_LOSS", -1.0)
    assert exported(run, tmp_path / "few", "--to=onnx", "--quantize=dynamic") == ExitCode.FAILED
    assert "leave --quantize out" in capsys.readouterr().err
    assert left(tmp_path) == []


def test_what_a_killed_export_left_goes_with_the_next_one(run: Path, tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    dead, alive = (tmp_path / f".walking.{pid}.partial" for pid in (ended.pid, os.getppid()))
    for folder in (dead, alive):
        folder.mkdir()
        (folder / "model.onnx").write_bytes(b"half")
    assert exported(run, tmp_path / "walking", "--to=onnx") == ExitCode.DONE
    assert sorted(left(tmp_path)) == [alive.name, "walking"]
    assert read(tmp_path / "walking").quantized is None


def test_a_full_disk_leaves_nothing_and_names_the_remedy(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(export, "measured", full)
    assert exported(run, tmp_path / "walking", "--to=onnx") == ExitCode.FAILED
    said = "cannot be written (No space left on device): free some space, or name another folder with --out\n"
    assert capsys.readouterr().err.endswith(said)
    assert left(tmp_path) == []


def test_an_interrupt_leaves_nothing(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> Any:
        assert [name for name in left(tmp_path) if name.endswith(".partial")]
        raise KeyboardInterrupt

    monkeypatch.setattr(export, "timed", interrupted)
    assert exported(run, tmp_path / "walking", "--to=onnx") == ExitCode.CANCELLED
    assert left(tmp_path) == []


@pytest.mark.long
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, ExitCode.CANCELLED), (signal.SIGKILL, -signal.SIGKILL)])
def test_a_process_that_is_ended_leaves_no_export(run: Path, tmp_path: Path, number: int, code: int) -> None:
    words = [sys.executable, "-m", "cluster.export", f"--run={run}", f"--out={tmp_path / 'walking'}", "--to=litert"]
    process = subprocess.Popen(words, cwd=ROOT, env=environment_for_any_folder(), stderr=subprocess.DEVNULL)
    try:
        while not list(tmp_path.glob(".walking.*.partial")):
            assert process.poll() is None
            os.sched_yield()
        process.send_signal(number)
        assert process.wait() == code
    finally:
        process.kill()
        process.wait()
    assert not (tmp_path / "walking").exists()
    assert bool(left(tmp_path)) == (number == signal.SIGKILL)


def test_recordings_other_than_those_of_the_training_are_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = own_recordings(tmp_path / "cache" / "other.npz", classes=3, channels=3, steps=16, train=80, test=30)
    assert exported(run, tmp_path / "walking", "--to=onnx", f"--data={other}") == ExitCode.BAD_USAGE
    assert "other windows than" in capsys.readouterr().err
    assert left(tmp_path) == []


def test_what_the_recordings_say_of_themselves_is_in_the_export(run: Path, tmp_path: Path) -> None:
    trained = read_result(run)
    model = load(run / "model")
    examples = examples_of(trained, model, None, lambda *_: None)
    said = replace(examples, dataset=replace(examples.dataset, sampling_hz=25.0, filters="causal"))
    made = export.export(Wish("onnx", False, tmp_path / "said"), trained, model, said, lambda *_: None)
    assert (made.sampling_hz, made.filters) == (25.0, "causal")


@pytest.mark.parametrize("to", ["onnx", "litert"])
def test_a_class_at_each_position_is_refused_where_readers_expect_one(run: Path, tmp_path: Path, to: str) -> None:
    trained = read_result(run)
    model = load(run / "model")
    examples = examples_of(trained, model, None, lambda *_: None)
    tagged = replace(examples, dataset=replace(examples.dataset, targets=Array("targets.int32", "int32", (10,))))
    with pytest.raises(UsageError, match=r"a class at each of 10 positions, .* use --to savedmodel or keras"):
        export.export(Wish(to, False, tmp_path / "tags"), trained, model, tagged, lambda *_: None)
    assert left(tmp_path) == []


@pytest.mark.parametrize(
    ("kind", "channels", "says"), [("hapt", 9, 2), ("uci-har", 9, 2), ("hhar", 3, 1), ("npz", 9, 0)]
)
def test_the_licence_of_a_known_set_is_what_uci_and_the_set_say(kind: str, channels: int, says: int) -> None:
    licence = known_sets.known(kind, channels).licence or ""
    assert ("under CC BY 4.0" in licence, "Any commercial use is prohibited" in licence) == (says > 0, says > 1)


def test_the_licence_of_hapt_is_the_set_s_own_words() -> None:
    source = find_source(None, {}, PROJECT_ROOT, PROJECT_ROOT / "none")
    if source.kind != "hapt" or source.path is None or source.path.suffix != ".zip":
        needs.skip("the HAPT set is not beside the checkout")
    with zipfile.ZipFile(source.path) as archive:
        readme = archive.read("README.txt").decode("latin-1")
    quoted = known_sets.LICENCE_OF_HAPT.partition('"')[2].rstrip('"')
    assert quoted in " ".join(readme.split())
    assert known_sets.known("hapt", len(CHANNELS)).sampling_hz == 50.0
    assert known_sets.known("hapt", 3).sampling_hz is None
