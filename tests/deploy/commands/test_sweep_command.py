"""`fab sweep FILE --dry-run` as a person types it: what it says, and how it ends where the runs do
not fit."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from core.inventory.schema import THIS_MACHINE
from core.inventory.templates import local_inventory
from deploy.commands import apps
from deploy.forecast import measurements as measured
from deploy.forecast.sweep import MeasuredRun
from tests.deploy.typed import Fab, Outcome

GIGABYTE = 1 << 30


RUNS = "\nsweep s: 3 runs, 2 at a time\n"


@pytest.fixture
def sweep(tmp_path: Path, fab: Fab, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """Forecasts three runs for two workers, of a machine of 8 GB, each measured to take so much."""
    (tmp_path / "i.yaml").write_text(local_inventory(2, 1))
    (tmp_path / "s.yaml").write_text("grid: {jobs.train.epochs: [1, 2, 3]}\n")
    monkeypatch.setattr(apps, "memory_of", lambda opened: {THIS_MACHINE: 8 * GIGABYTE})

    def forecast(memory: int, flags: str = "") -> Outcome:
        run = MeasuredRun("", 5.0, 0.1, 100, memory)
        monkeypatch.setattr(
            measured, "measured_run", lambda path, settings, words: replace(run, settings=words)
        )
        done = fab(f"sweep s.yaml --dry-run --inventory i.yaml {flags}")
        assert not (tmp_path / "runs").exists()
        return done

    return forecast


def test_what_fits_ends_with_status_0_and_trains_nothing(sweep: Callable[..., Outcome]) -> None:
    sweep(GIGABYTE).says(RUNS)


def test_what_does_not_fit_ends_with_status_1_and_names_the_node(
    sweep: Callable[..., Outcome],
) -> None:
    sweep(4 * GIGABYTE).says(RUNS, code=1).refuses(  # the forecast comes first
        f"s.yaml: {THIS_MACHINE} has not the memory for 2 of these runs at a time: take fewer"
        " workers of it into the inventory, or narrower networks",
        code=1,
    )
    shown = sweep(4 * GIGABYTE, "--json").says(code=1)
    assert json.loads(shown.stdout.splitlines()[-1])["fits"] is False
