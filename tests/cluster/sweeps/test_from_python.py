from pathlib import Path
from typing import Any

import pytest

import pscluster
from cluster.pages.files import RunRecord, SweepRecord
from core.inventory.templates import local_inventory
from pscluster import cluster as module


def test_a_sweep_from_python_is_the_command_and_its_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "inventory.yaml").write_text(local_inventory(2, 1))
    folder = tmp_path / "runs" / "x-sweep"
    (folder / "runs" / "0001" / "x-train").mkdir(parents=True)
    (folder / "runs" / "0001" / "x-train" / "result.json").write_text('{"status": "done"}')
    run = RunRecord(
        "0001", {}, 0, "finished", {"accuracy": 0.5}, 1.0, "worker:0", "runs/0001/x-train"
    )
    SweepRecord("s", "x-sweep", "finished", "node", (0,), (), (run,)).write(folder)
    said: list[str] = []

    def played(words: list[str], report: object) -> Any:
        said.extend(words)
        return {"result_path": str(folder / "result.json")}

    monkeypatch.setattr(module, "run", played)
    sweep = pscluster.Cluster(tmp_path / "inventory.yaml").sweep("s.yaml", resume=folder)
    assert said[:2] == ["sweep", "s.yaml"]
    assert said[-3:] == ["--resume", "--run", str(folder)]
    assert sweep.runs[0]["final"] == {"accuracy": 0.5}
    assert sweep.table == [["runs", "accuracy", "seconds"], ["1", "0.5000", "1.0"]]
    assert sweep.run("0001").result == {"status": "done"}
    with pytest.raises(pscluster.UsageError, match="expected the folder of a run"):
        sweep.run("0002")
