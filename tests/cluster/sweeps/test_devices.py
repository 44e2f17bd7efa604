"""Devices as an axis: what a node has trains, what it has not is refused in one line."""

import json
from pathlib import Path

import pytest

from tests.cluster.sweeps.swept import SMALL, ended, prepared, record_of, typed

pytestmark = pytest.mark.long

SWEEP = f"{SMALL}  jobs.train.epochs: 1\ngrid: {{jobs.train.device.kind: [cpu, gpu]}}\n"
NO_GPU = "jobs.train.device: expected 1 gpu"


def test_a_gpu_that_is_not_there_is_refused_and_the_processor_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    prepared(tmp_path, SWEEP)
    said = ended(typed(tmp_path, "sweep", "s.yaml"), code=1)
    record = record_of(tmp_path)
    assert record.state == "failed"
    ends = [(run.settings["jobs.train.device.kind"], run.state) for run in record.runs]
    assert ends == [("cpu", "finished"), ("gpu", "failed")]
    assert f"{NO_GPU} on this machine, found 0: " in str(record.runs[1].error)
    assert "1 of 2 runs failed" in said
    (result,) = tmp_path.glob("runs/*-sweep/runs/0001/*-train/result.json")
    assert json.loads(result.read_text())["settings"]["device"]["kind"] == "cpu"
    said = ended(typed(tmp_path, "sweep", "s.yaml", "--dry-run"), code=2)
    assert f'kind "gpu": its training did not come to an update: {NO_GPU}' in said
