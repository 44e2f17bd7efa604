"""Programs like TensorFlow's two tutorials, unmodified, on a server and two workers."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.inventory.templates import local_inventory
from deploy.common.project import ROOT
from tests.deploy.typed import PROGRAM
from tests.ran import ran

PROGRAMS = ROOT / "examples" / "programs"


def typed(here: Path, *words: str) -> str:
    """What `fab` says of it on standard error; it ends well."""
    environment = {**os.environ, "PSCLUSTER_INVENTORY": str(here / "inventory.yaml")}
    return ran(*PROGRAM, *words, folder=here, environment=environment).stderr


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("programs")
    (folder / "inventory.yaml").write_text(local_inventory(2, 1))
    typed(folder, "deploy", "start", "--no-jobs")
    yield folder
    typed(folder, "deploy", "stop")


@pytest.mark.long
def test_parameter_servers_and_a_coordinator(here: Path) -> None:
    said = typed(here, "job", "run", str(PROGRAMS / "parameter_server.py"), "--", "--steps", "300")
    assert "300 steps: y = 3.000 x -2.000" in said


@pytest.mark.long
def test_workers_that_add_up_their_gradients(here: Path) -> None:
    typed(here, "job", "run", "--on", "workers", str(PROGRAMS / "multi_worker.py"))
    lines = [json.loads(path.read_text()) for path in here.glob("runs/*/files/worker-*/line.json")]
    assert len(lines) == 2
    assert lines[0] == lines[1]
