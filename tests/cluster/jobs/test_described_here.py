"""From the zips of a phone app to labels of another zip, without a line of code."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from cluster.export import __main__ as exporting
from cluster.export import graph
from cluster.jobs import session
from cluster.jobs.train import TrainRun
from recognise.command import main as recognise
from tests.cluster.jobs.kit import conducted, inventory_in
from tests.recognise.readings import Readings, walk
from tests.recognise.test_formats import sensor_logger

PEOPLE = ("anna", "bert", "cleo", "dora")
LABELS = {"rest": 0.02, "walk": 1.0}
"""Each with the size of its movement."""


def moved(label: str, seed: int) -> Readings:
    """Some seconds at 100 Hz, turned so that the phone stands."""
    whole = walk(3000, seed=seed, hz=100.0, begin=100.0)
    gravity = np.array([0.0, 0.0, 1.0])
    acceleration = gravity + LABELS[label] * (whole.acceleration - gravity)
    return Readings(whole.times, acceleration, LABELS[label] * whole.rotation)


@pytest.mark.long
def test_the_whole_way_from_an_apps_zips_to_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(session, "one_thread_an_operation", lambda: None)
    monkeypatch.setattr(graph, "one_thread", lambda: None)
    for seed, person in enumerate(PEOPLE):
        for label in LABELS:
            folder = tmp_path / "walks" / person / label
            folder.mkdir(parents=True)
            (folder / "2026-01-01.zip").write_bytes(sensor_logger(moved(label, seed)))
    mode = "jobs.train.mode=single"
    data = {
        "source": tmp_path / "walks",
        "format": "sensor-logger",
        "nine_channels": "true",
        "filters": "causal",
    }
    settings = [f"jobs.train.data.{key}={value}" for key, value in data.items()]
    small = ("epochs=8", "model.hidden=8", "validation_subjects=1", "batch_size=10")
    settings += [f"jobs.train.{each}" for each in small]
    run, result = conducted(TrainRun, inventory_in(tmp_path, mode, *settings), tmp_path)
    assert result["dataset"]["held_out"]["by"] == "user"
    assert (result["dataset"]["filters"], result["final"]["accuracy"]) == ("causal", 1.0)

    export = tmp_path / "export"
    assert exporting.main([f"--run={run}", f"--out={export}", "--to=onnx", "--quiet"]) == 0
    capsys.readouterr()
    for label in LABELS:
        file = tmp_path / f"{label}.zip"
        file.write_bytes(sensor_logger(moved(label, 9)))
        words = ["--model", export, file, "--format", "sensor-logger", "--to", "json"]
        assert recognise([*map(str, words)]) == 0
        said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        labels = Counter(event["label"] for event in said if event["event"] == "label")
        assert labels[label] > 0.9 * labels.total()
