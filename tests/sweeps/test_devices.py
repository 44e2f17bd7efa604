"""Devices as an axis: what a node has trains, what it has not is refused in one line, and the others go on."""

import json
from pathlib import Path

import pytest

from cluster.inventory.templates import local_inventory
from tests.sweeps.swept import LONGEST_SECONDS, prepared, record_of, typed

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

SWEEP = """
base:
  jobs.train.model.n_stacked_layers: 1
  jobs.train.model.hidden: 8
  jobs.train.batch_size: 20
  jobs.train.epochs: 1
grid: {jobs.train.device.kind: [cpu, gpu]}
"""


def test_a_gpu_that_is_not_there_is_refused_and_the_processor_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    prepared(tmp_path)
    (tmp_path / "inventory.yaml").write_text(local_inventory(1, 1) + "page: {listen: 'off'}\n")
    (tmp_path / "s.yaml").write_text(SWEEP)
    sweep = typed(tmp_path, "sweep", "s.yaml")
    said, _ = sweep.communicate(timeout=LONGEST_SECONDS)
    assert sweep.returncode == 1, said
    record = record_of(tmp_path)
    assert record.state == "failed"
    on_processor, on_gpu = record.runs
    assert (on_processor.settings, on_processor.state) == ({"jobs.train.device.kind": "cpu"}, "finished")
    assert (on_gpu.settings, on_gpu.state) == ({"jobs.train.device.kind": "gpu"}, "failed")
    assert "jobs.train.device: expected 1 gpu on this machine, found 0: " in str(on_gpu.error)
    assert "1 of 2 runs failed" in said
    (result,) = tmp_path.glob("runs/*-sweep/runs/0001/*-train/result.json")
    assert json.loads(result.read_text())["settings"]["device"]["kind"] == "cpu"
    dry = typed(tmp_path, "sweep", "s.yaml", "--dry-run")
    said, _ = dry.communicate(timeout=LONGEST_SECONDS)
    assert dry.returncode == 2, said
    assert 'kind "gpu": its training did not come to an update: jobs.train.device: expected 1 gpu' in said
