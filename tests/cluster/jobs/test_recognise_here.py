"""The job `recognise` in this process: its labels are those of the network, and what it refuses."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.jobs import session
from cluster.jobs.cancel import Cancel
from cluster.jobs.labels_file import best_of
from cluster.jobs.recognise import BATCH, RecogniseRun
from cluster.jobs.recorded_as import RecordedAs, recorded_as
from cluster.jobs.train_result import StoredModel, store
from cluster.jobs.train_result import load as load_model
from core.data.filters import CHANNELS, NINE_CHANNELS, UNITS
from core.data.signals import CAUSAL
from core.engine.messages import Outcome
from core.errors import UsageError
from core.inventory import Inventory
from core.models.network import build
from core.models.thesis import ThesisModel
from core.status.past_run import read_run
from recognise.stream import Settings, Window
from recognise.whole import LongRecording
from tests.cluster.jobs.kit import conducted, inventory_in, refusal
from tests.cluster.jobs.test_model_store import stored
from tests.recognise.readings import Readings, walk
from worker_node.recordings import Standardization

import tensorflow as tf  # isort: skip

LABELS = ("SITTING", "WALKING", "LAYING")
HOP = 20


def trained(run: Path, filters: str | None = CAUSAL, **changed: object) -> StoredModel:
    """A run with a model that nobody trained; `changed`: what it says of its recordings."""
    network = build(
        ThesisModel(hidden=8, n_stacked_layers=1), window_steps=128, channels=9, classes=3
    )
    run.mkdir()
    standard = Standardization(np.full(9, 0.1, np.float32), np.full(9, 0.5, np.float32))
    store(run / "model", network, network.initial(3), standard, LABELS, "0" * 64)
    dataset = {
        "filters": filters,
        "channel_names": list(CHANNELS),
        "units": list(UNITS),
        "sampling_hz": 50.0,
    }
    said = {
        "dataset": dataset | changed,
        "settings": {"data": {"window_stride": HOP, "filters": "two-way"}},
    }
    (run / "result.json").write_text(json.dumps(said))
    return load_model(run / "model")


def recorded(path: Path, readings: Readings | None = None) -> Path:
    readings = readings or walk(BATCH * HOP + 700).rows(np.r_[0:400, 500 : BATCH * HOP + 700])
    np.savez(
        path, times=readings.times, acceleration=readings.acceleration, rotation=readings.rotation
    )
    return path


def described(folder: Path, *settings: str) -> Inventory:
    """A job that labels `day.npz` with the model of `run`."""
    mine = (f"jobs.recognise.run={folder / 'run'}", f"jobs.recognise.data={folder / 'day.npz'}")
    return inventory_in(folder, "jobs.train.mode=single", *mine, *settings)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # Another test of this process may have begun to compute: TensorFlow's threads are what they are
    # then.
    monkeypatch.setattr(session, "one_thread_an_operation", lambda: None)
    return tmp_path


def rows_of(run: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((run / "labels.csv").read_text().splitlines()))


def test_labels_are_those_of_the_network_window_by_window(here: Path) -> None:
    model = trained(here / "run")
    name = recorded(here / "day.npz")
    run, result = conducted(RecogniseRun, described(here), here)

    found = LongRecording(str(name), Settings(hop=HOP), CAUSAL).items()
    windows = [item for item in found if isinstance(item, Window)]
    assert len(windows) > BATCH
    inputs = np.stack([window.channels for window in windows]) - model.standardization.mean
    named = model.network.unpack(tf.constant(model.vector))
    windows_of_it = tf.constant(inputs / np.float32(0.5))
    seed = tf.zeros([2], tf.int32)
    answer = model.network.apply(named, windows_of_it, training=False, seed=seed)
    best, confidence = best_of(answer.logits.numpy())

    rows = rows_of(run)
    labelled = [row for row in rows if row["label"]]
    assert [row["label"] for row in labelled] == [LABELS[each] for each in best]
    times = [float(row["time"]) for row in labelled]
    assert times == pytest.approx([window.centre for window in windows], abs=6e-4)
    said = [float(row["confidence"]) for row in labelled]
    assert said == pytest.approx(confidence.tolist(), abs=1e-4)
    (gap,) = (row for row in rows if row["note"])
    assert gap["note"].startswith("gap: no reading for 2.020 s")
    all_times = [float(row["time"]) for row in rows]
    assert all_times == sorted(all_times)

    assert result["status"] == "done"
    assert result["windows"] == len(windows) == sum(total["windows"] for total in result["totals"])
    assert (result["filters"], result["hop"], result["faults"]) == (CAUSAL, HOP, {"gap": 1})
    assert result["gaps"] == [
        {"after": pytest.approx(7.98), "detail": "no reading for 2.020 s; the windows restart"}
    ]
    assert sum(total["share"] for total in result["totals"]) == pytest.approx(1.0)
    assert result["windows_per_second"] > 0
    assert set(result["windows_per_second_by_worker"]) == {"worker:0"}
    assert read_run(run).job == "recognise"
    report = (run / "report.html").read_text()
    assert 'id="chart-day"' in report
    assert "Totals by label" in report


def test_an_interrupted_job_keeps_the_labels_of_what_was_done(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained(here / "run", filters="two-way")
    recorded(here / "day.npz")
    cancel = Cancel()
    take = RecogniseRun._take

    def take_and_stop(job: RecogniseRun, outcome: Outcome) -> None:
        take(job, outcome)
        cancel._asked.set()

    monkeypatch.setattr(RecogniseRun, "_take", take_and_stop)
    run, result = conducted(RecogniseRun, described(here), here, cancel)
    assert result["status"] == "cancelled"
    assert 200 < result["windows"] <= BATCH
    assert result["filters"] == "two-way"
    assert sum(bool(row["label"]) for row in rows_of(run)) == result["windows"]


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("data=null", "--data: expected a recording"),
        ("run={here}/program", "expected a model that a training run left"),
        ("run={here}/other", "expected a model of the nine channels"),
        ("data={here}", "expected a file with a recording"),
        ("acceleration=m/s2", "give --acceleration g"),
    ],
)
def test_what_cannot_be_labelled_is_refused_before_the_run(
    here: Path, setting: str, words: str
) -> None:
    trained(here / "run")
    recorded(here / "day.npz")
    stored(here / "other" / "model", ThesisModel(hidden=8))
    (here / "program").mkdir()
    inventory = described(here, f"jobs.recognise.{setting.format(here=here)}")
    assert words in refusal(RecogniseRun, inventory, here)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"channel_names": []}, "got one whose training does not say its channels"),
        ({"channel_names": list(CHANNELS[::-1])}, "got total_acc_z, total_acc_y"),
        ({"units": ["m/s2"] * 9}, "got m/s2, m/s2"),
        ({"sampling_hz": None}, "of 50 Hz or another stated rate, got one"),
        ({"sampling_hz": 100.0}, "the model has 100"),
        ({"filters": None}, "filters, got one whose training does not say which"),
    ],
)
def test_a_model_of_which_a_fact_is_unknown_or_another_labels_nothing(
    here: Path, changed: dict[str, Any], said: str
) -> None:
    trained(here / "run", **changed)
    recorded(here / "day.npz")
    assert said in refusal(RecogniseRun, described(here), here)


def test_what_was_left_out_is_said_though_the_job_is_quiet(
    here: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trained(here / "run")
    readings = walk(6000)
    readings.rotation[5000:] *= 60.0
    recorded(here / "day.npz", readings)
    _, result = conducted(RecogniseRun, described(here), here)
    assert 200 < result["windows"] < (6000 - 128) // HOP
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert "implausible; mean rotation" in line

    recorded(here / "day.npz", walk(100))
    with pytest.raises(
        UsageError, match=r"nothing was labelled: 100 readings, and a window has 2\.56 s"
    ):
        conducted(RecogniseRun, described(here), here)


HAPT = {"name": "hapt", "filters": "causal"}


@pytest.mark.parametrize(
    ("said", "mean", "refused"),
    [
        ({"dataset": {"name": "hapt"}, "settings": {"data": {"filters": "causal"}}}, 0.0, ""),
        (
            {"dataset": {**HAPT, "source": "hapt.npz", "sampling_hz": 50}},
            0.0,
            "does not say its channels",
        ),
        (
            {"dataset": HAPT},
            5.0,
            "trained in other units than g and rad/s: mean acceleration",
        ),
    ],
)
def test_a_run_of_a_version_that_wrote_no_names_is_known_by_its_set(
    tmp_path: Path, said: dict[str, Any], mean: float, refused: str
) -> None:
    standard = Standardization(np.full(9, mean, np.float32), np.ones(9, np.float32))
    (tmp_path / "result.json").write_text(json.dumps(said))
    if not refused:
        assert recorded_as(tmp_path, standard) == RecordedAs(
            replace(NINE_CHANNELS, filters=CAUSAL), CAUSAL, 0
        )
        return
    with pytest.raises(UsageError, match=refused):
        recorded_as(tmp_path, standard)
