"""Programs like TensorFlow's two tutorials, unmodified, on a server and two workers."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.inventory.templates import local_inventory
from deploy.common.project import ROOT
from tests.hang import HANG_SECONDS

FAB = Path(sys.executable).with_name("fab")
PROGRAMS = ROOT / "examples" / "programs"


def typed(here: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PSCLUSTER_INVENTORY": str(here / "inventory.yaml")}
    return subprocess.run(
        [str(FAB), "-r", str(ROOT), *words],
        cwd=here,
        env=environment,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("programs")
    (folder / "inventory.yaml").write_text(local_inventory(2, 1))
    started = typed(folder, "deploy", "start", "--no-jobs")
    assert started.returncode == 0, started.stderr
    yield folder
    assert typed(folder, "deploy", "stop").returncode == 0


@pytest.mark.long
def test_parameter_servers_and_a_coordinator(here: Path) -> None:
    ended = typed(here, "job", "run", str(PROGRAMS / "parameter_server.py"), "--", "--steps", "300")
    assert ended.returncode == 0, ended.stderr
    assert "300 steps: y = 3.000 x -2.000" in ended.stderr


@pytest.mark.long
def test_workers_that_add_up_their_gradients(here: Path) -> None:
    ended = typed(here, "job", "run", "--on", "workers", str(PROGRAMS / "multi_worker.py"))
    assert ended.returncode == 0, ended.stderr
    lines = [json.loads(path.read_text()) for path in here.glob("runs/*/files/worker-*/line.json")]
    assert len(lines) == 2
    assert lines[0] == lines[1]
