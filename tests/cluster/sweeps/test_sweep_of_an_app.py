"""A sweep of an app on one host: every run trains the copy in the sweep's folder."""

import json
from pathlib import Path

import pytest

from cluster.__main__ import main
from cluster.apps.files import files_of_app
from cluster.sweeps import executors
from core.inventory.templates import local_inventory
from deploy.common.project import environment_for_any_folder

SWEEP = "base: {jobs.train.app: mine.py}\ngrid: {jobs.train.epochs: [1, 2]}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(executors, "MEMBER", "tests.cluster.sweeps.play_member")
    for name, value in environment_for_any_folder().items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inventory.yaml").write_text(local_inventory(2, 1) + "page: {listen: 'off'}\n")
    (tmp_path / "mine.py").write_text("WIDTH = 8\n")
    (tmp_path / "s.yaml").write_text(SWEEP)
    return tmp_path


def swept(*words: str) -> int:
    given = ["--inventory", "inventory.yaml", "--sweep", "s.yaml"]
    return main(["sweep", *given, "--set", "jobs.train.app=mine.py", *words])


def test_a_resumed_sweep_trains_what_it_began_with(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    digest = files_of_app(folder / "mine.py").digest
    assert swept() == 0
    (sweep,) = folder.glob("runs/*-sweep")
    (sweep / "result.json").unlink()  # as of a driver that was killed before the second run
    record = json.loads((sweep / "sweep.json").read_text())
    assert [run["state"] for run in record["runs"]] == ["finished"] * 2
    record["runs"][1] |= {"state": "waiting", "final": None, "folder": None}
    (sweep / "sweep.json").write_text(json.dumps(record))
    plan = json.loads((sweep / "plan.json").read_text())
    (sweep / "plan.json").write_text(json.dumps({**plan, "fingerprint": "of an earlier version"}))
    (folder / "mine.py").write_text("WIDTH = 16\n")
    (folder / "s.yaml").write_text(SWEEP.replace("[1, 2]", "[1, 3]"))
    assert swept("--resume", str(sweep)) == 2
    assert "s.yaml: has other runs than the sweep in" in capsys.readouterr().err
    (folder / "s.yaml").write_text(SWEEP)
    assert swept("--resume", str(sweep)) == 0
    assert files_of_app(sweep / "app").digest == digest
    assert f'jobs.train.app="{sweep / "app"}"' in (sweep / "runs" / "0002.log").read_text()
    assert "has changed since the run began" in capsys.readouterr().err
