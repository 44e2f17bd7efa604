"""`fab sweep FILE --dry-run` as a person types it: what it says, and how it ends where the runs do not fit."""

import json
from pathlib import Path

import pytest

from cluster.inventory.schema import THIS_MACHINE
from cluster.inventory.templates import local_inventory
from deploy.commands import apps
from deploy.sweeps import measured
from deploy.sweeps.outlook import MeasuredRun
from tests.deploy.typed import Fab

GIGABYTE = 1 << 30


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three runs for two workers; a machine of 8 GB, on which a run was measured to take one."""
    (tmp_path / "i.yaml").write_text(local_inventory(2, 1))
    path = tmp_path / "s.yaml"
    path.write_text("grid: {jobs.train.epochs: [1, 2, 3]}\n")
    monkeypatch.setattr(apps, "memory_of", lambda opened: {THIS_MACHINE: 8 * GIGABYTE})
    monkeypatch.setattr(measured, "measured_run", lambda path, settings, words: taking(GIGABYTE, words))
    return path


def taking(memory: int, words: str) -> MeasuredRun:
    return MeasuredRun(words, 5.0, 0.1, 100, memory)


def test_what_fits_ends_with_status_0_and_trains_nothing(tmp_path: Path, sweep: Path, fab: Fab) -> None:
    outcome = fab("sweep s.yaml --dry-run --inventory i.yaml")
    assert outcome.code == 0, outcome.stderr
    assert "\nsweep s: 3 runs, 2 at a time\n" in outcome.stdout
    assert not (tmp_path / "runs").exists()


def test_what_does_not_fit_ends_with_status_1_and_names_the_node(
    tmp_path: Path, sweep: Path, fab: Fab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measured, "measured_run", lambda path, settings, words: taking(4 * GIGABYTE, words))
    outcome = fab("sweep s.yaml --dry-run --inventory i.yaml")
    assert outcome.code == 1
    assert "sweep s: 3 runs, 2 at a time" in outcome.stdout, "the outlook comes first"
    assert outcome.stderr.splitlines()[-1] == (
        f"s.yaml: {THIS_MACHINE} has not the memory for 2 of these runs at a time: take fewer workers of it into the "
        "inventory, or narrower networks"
    )
    outcome = fab("sweep s.yaml --dry-run --json --inventory i.yaml")
    assert outcome.code == 1
    assert json.loads(outcome.stdout.splitlines()[-1])["fits"] is False
    assert not (tmp_path / "runs").exists()
