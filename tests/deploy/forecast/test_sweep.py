from dataclasses import replace
from pathlib import Path

import pytest

from cluster.sweeps.progress import in_words
from cluster.sweeps.sweep_file import read_text
from core.ground.errors import UsageError
from core.inventory import Inventory, load
from core.inventory.schema import THIS_MACHINE
from core.inventory.templates import local_inventory
from deploy.commands.sweeps import evenly
from deploy.converge.machine_facts import alone
from deploy.forecast import measurements as measured
from deploy.forecast.measurements import measured_run
from deploy.forecast.sweep import MeasuredRun, as_json, forecast_of, lines, needs_of

GIGABYTE = 1 << 30
SWEEP = read_text(
    "runs: [{jobs.train.epochs: 1}, {jobs.train.epochs: 2}]\nseeds: [1, 2, 3]", "s.yaml"
)
ONE = MeasuredRun("epochs 1", 5.0, 0.1, 100, 300 << 20)


@pytest.fixture
def inventory(tmp_path: Path) -> Inventory:
    path = tmp_path / "inventory.yaml"
    path.write_text(local_inventory(4, 1))
    return load(path, ["jobs.train.mode=single"])


def test_the_memory_is_that_of_as_many_runs_as_workers(inventory: Inventory) -> None:
    (need,) = needs_of(SWEEP, [inventory], {THIS_MACHINE: 8 * GIGABYTE}, [])
    assert (need.node, need.runs, need.needed) == (THIS_MACHINE, 4, 4 * alone(inventory.jobs.train))
    assert need.fits
    (need,) = needs_of(SWEEP, [inventory], {THIS_MACHINE: GIGABYTE}, [])
    assert not need.fits
    (need,) = needs_of(SWEEP, [inventory], {}, [replace(ONE, memory_bytes=2 * GIGABYTE)])
    assert (need.needed, need.fits) == (8 * GIGABYTE, True)


def test_a_run_over_all_nodes_takes_what_its_roles_take(inventory: Inventory) -> None:
    sweep = replace(SWEEP, placement="cluster")
    (need,) = needs_of(sweep, [inventory], {THIS_MACHINE: 8 * GIGABYTE}, [])
    assert need.runs == 1
    assert need.needed > alone(inventory.jobs.train)


def test_the_time_is_that_of_all_updates_of_all_runs(inventory: Inventory) -> None:
    needs = needs_of(SWEEP, [inventory], {THIS_MACHINE: 8 * GIGABYTE}, [ONE])
    found = forecast_of(SWEEP, needs, [ONE, replace(ONE, settings="epochs 2", updates=200)])
    assert (found.runs, found.at_a_time, found.fits) == (6, 4, True)
    assert found.run_seconds == pytest.approx(20.0)
    assert found.seconds == pytest.approx(6 * (5.0 / 4 + 15.0))
    said = lines(found)
    assert said[0] == "sweep sweep: 6 runs, 4 at a time"
    assert (
        "time: epochs 1: 15 s a run (100 updates of 100.0 ms after 5.0 s, as measured here alone)"
        in said
    )
    assert said[-1].startswith("time: about 1 min 37 s in all")
    assert as_json(found)["needs"][0]["runs"] == 4
    assert lines(forecast_of(SWEEP, needs, [], "why"))[-1] == "time: not known: why"


def test_a_run_is_measured_for_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "MODULE", "tests.cluster.sweeps.play_member")
    found = measured_run(tmp_path / "inventory.yaml", ["jobs.train.epochs=1"], "epochs 1")
    assert found.updates == 8
    assert found.update_seconds > 0.0
    assert found.memory_bytes > 0
    with pytest.raises(
        UsageError, match="epochs 1: its training did not come to an update: settings: expected"
    ):
        measured_run(tmp_path / "inventory.yaml", [], "epochs 1", ["refused"])


def test_what_is_measured_of_many_settings() -> None:
    assert evenly(3, 8) == [0, 1, 2]
    assert evenly(100, 8) == [0, 14, 28, 42, 57, 71, 85, 99]
    assert (
        in_words({"jobs.train.model.hidden": 8, "jobs.train.mode": "sync"})
        == 'hidden 8, mode "sync"'
    )
    assert in_words({}) == ""
