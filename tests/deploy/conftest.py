import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fabric.main import program

from deploy.commands import opening
from deploy.inventory_choice import InventoryOpener
from deploy.project import ROOT
from tests.deploy.playing import PlayedCluster
from tests.deploy.typed import Fab, Outcome


@pytest.fixture
def fab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Fab:
    """`fab LINE`, typed in the test's empty folder; in this process, because Fabric takes half a second to import."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PSCLUSTER_INVENTORY", raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def typed(line: str) -> Outcome:
        monkeypatch.setattr(opening, "OPENER", InventoryOpener())  # as in a process of its own
        code = 0
        try:
            program.run(["fab", "-r", str(ROOT), *shlex.split(line)])
        except SystemExit as ended:
            code = int(ended.code or 0)
        return Outcome(code, *capsys.readouterr())

    return typed


@pytest.fixture
def played(tmp_path: Path) -> Iterator[PlayedCluster]:
    cluster = PlayedCluster(tmp_path)
    yield cluster
    cluster.end()
