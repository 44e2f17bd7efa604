"""The job `recognise` in this process: its labels are those of the network, and what it refuses."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from cluster.data.recordings import CAUSAL
from cluster.errors import ExitCode, UsageError
from cluster.inventory import Inventory, load
from cluster.inventory.templates import local_inventory
from cluster.jobs import session
from cluster.jobs.cancel import Cancel
from cluster.jobs.labels_file import best_of
from cluster.jobs.lifecycle import conduct
from cluster.jobs.progress import Display
from cluster.jobs.recognise import BATCH, RecogniseRun
from cluster.jobs.train_result import StoredModel, store
from cluster.jobs.train_result import load as load_model
from cluster.models.network import build
from cluster.models.thesis import ThesisModel
from cluster.status.history import read_run
from recognise.stream import Settings, Window
from recognise.whole import LongRecording
from tests.jobs.test_model_store import stored
from tests.recognise.readings import Readings, walk
from worker_node.recordings import Standardization

import tensorflow as tf  # isort: skip

LABELS = ("SITTING", "WALKING", "LAYING")
HOP = 20


def trained(run: Path, filters: str | None = CAUSAL) -> StoredModel:
    """A run with a model that nobody trained."""
    network = build(ThesisModel(hidden=8, n_stacked_layers=1), window_steps=128, channels=9, classes=3)
    run.mkdir()
    standard = Standardization(np.full(9, 0.1, np.float32), np.full(9, 0.5, np.float32))
    store(run / "model", network, network.initial(3), standard, LABELS, "0" * 64)
    said = {"dataset": {"filters": filters}, "settings": {"data": {"window_stride": HOP, "filters": "two-way"}}}
    (run / "result.json").write_text(json.dumps(said))
    return load_model(run / "model")


def recorded(path: Path, readings: Readings | None = None) -> Path:
    readings = readings or walk(BATCH * HOP + 700).rows(np.r_[0:400, 500 : BATCH * HOP + 700])
    np.savez(path, times=readings.times, acceleration=readings.acceleration, rotation=readings.rotation)
    return path


def inventory(folder: Path, *settings: str) -> Inventory:
    path = folder / "inventory.yaml"
    path.write_text(local_inventory(1, 1))
    mine = (f"jobs.recognise.run={folder / 'run'}", f"jobs.recognise.data={folder / 'day.npz'}")
    return load(path, ["jobs.train.mode=single", *mine, *settings])


def test_labels_are_those_of_the_network_window_by_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Another test of this process may have begun to compute: TensorFlow's threads are what they are then.
    monkeypatch.setattr(session, "one_thread_an_operation", lambda: None)
    model, name = trained(tmp_path / "run"), recorded(tmp_path / "day.npz")
    cancel = Cancel()
    job = RecogniseRun(inventory(tmp_path), Display(quiet=True), cancel)
    path, result = conduct(job, tmp_path / "runs", cancel)

    found = list(LongRecording(str(name), Settings(hop=HOP), CAUSAL).items())
    windows = [item for item in found if isinstance(item, Window)]
    assert len(windows) > BATCH
    inputs = (np.stack([window.channels for window in windows]) - model.standardization.mean) / np.float32(0.5)
    network = model.network
    named = network.unpack(tf.constant(model.vector))
    logits = network.apply(named, tf.constant(inputs), training=False, seed=tf.zeros([2], tf.int32)).logits.numpy()
    best, confidence = best_of(logits)

    rows = list(csv.DictReader((path.parent / "labels.csv").read_text().splitlines()))
    labelled = [row for row in rows if row["label"]]
    assert [row["label"] for row in labelled] == [LABELS[each] for each in best]
    assert [float(row["time"]) for row in labelled] == pytest.approx([window.centre for window in windows], abs=6e-4)
    assert [float(row["confidence"]) for row in labelled] == pytest.approx(confidence.tolist(), abs=1e-4)
    (gap,) = (row for row in rows if row["note"])
    assert gap["note"].startswith("gap: no reading for 2.020 s")
    times = [float(row["time"]) for row in rows]
    assert times == sorted(times)

    assert result["status"] == "done"
    assert result["windows"] == len(windows) == sum(total["windows"] for total in result["totals"])
    assert (result["filters"], result["hop"], result["faults"]) == (CAUSAL, HOP, {"gap": 1})
    assert result["gaps"] == [{"after": pytest.approx(7.98), "detail": "no reading for 2.020 s; the windows restart"}]
    assert sum(total["share"] for total in result["totals"]) == pytest.approx(1.0)
    assert result["windows_per_second"] > 0
    assert set(result["windows_per_second_by_worker"]) == {"worker:0"}
    view = read_run(path.parent)
    assert view.job == "recognise"
    assert sum(sample.windows_per_second for sample in view.samples) >= 0
    report = (path.parent / "report.html").read_text()
    assert 'id="chart-day"' in report
    assert "Totals by label" in report


def test_an_interrupted_job_keeps_the_labels_of_what_was_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "one_thread_an_operation", lambda: None)
    trained(tmp_path / "run", filters=None)
    recorded(tmp_path / "day.npz")
    cancel = Cancel()
    job = RecogniseRun(inventory(tmp_path), Display(quiet=True), cancel)
    take = job._take

    def take_and_stop(outcome: object) -> None:
        take(outcome)  # type: ignore[arg-type]
        cancel._asked.set()

    monkeypatch.setattr(job, "_take", take_and_stop)
    path, result = conduct(job, tmp_path / "runs", cancel)
    assert result["status"] == "cancelled"
    assert 200 < result["windows"] <= BATCH
    assert result["filters"] == "two-way"
    rows = list(csv.DictReader((path.parent / "labels.csv").read_text().splitlines()))
    assert sum(bool(row["label"]) for row in rows) == result["windows"]


def refusal(described: Inventory, folder: Path) -> str:
    cancel = Cancel()
    with pytest.raises(UsageError) as caught:
        conduct(RecogniseRun(described, Display(quiet=True), cancel), folder / "runs", cancel)
    assert caught.value.exit_code == ExitCode.BAD_USAGE
    assert not (folder / "runs").exists()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_cannot_be_labelled_is_refused_before_the_run(tmp_path: Path) -> None:
    trained(tmp_path / "run")
    recorded(tmp_path / "day.npz")
    (tmp_path / "other").mkdir()
    stored(tmp_path / "other" / "model", ThesisModel(hidden=8))
    (tmp_path / "program").mkdir()
    for settings, words in (
        (("jobs.recognise.data=null",), "--data: expected a recording"),
        ((f"jobs.recognise.run={tmp_path / 'program'}",), "expected a model that a training run left"),
        ((f"jobs.recognise.run={tmp_path / 'other'}",), "expected a built-in model of the nine channels"),
        ((f"jobs.recognise.data={tmp_path}",), "expected a file with a recording"),
        (("jobs.recognise.acceleration=m/s2",), "give --acceleration g"),
    ):
        assert words in refusal(inventory(tmp_path, *settings), tmp_path)
