"""SIGKILL of `fab` and of a search's driver: `--resume` makes the table of a calm sweep."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cluster.sweeps.swept import (
    SMALL,
    bits_of,
    children,
    ended,
    gone,
    has_checkpoint,
    kill,
    prepared,
    record_of,
    table_of,
    typed,
    until,
)
from tests.deploy.playing import eventually

pytestmark = pytest.mark.long

BASE = f"""{SMALL}
  jobs.train.epochs: 120
  jobs.train.checkpoint.every_updates: 10
"""
GRID = f"""{BASE}
grid: {{jobs.train.optimizer.learning_rate: [0.002, 0.004, 0.008]}}
seeds: [3]
"""
SEARCH = f"""{BASE}
  jobs.train.slots: 2
  jobs.train.validation_subjects: 1
search:
  trials: 3
  sampler: tpe
  pruner: median
  space: {{jobs.train.optimizer.learning_rate: {{low: 1e-3, high: 1e-2, log: true}}}}
seeds: [3]
"""


def kill_fab(folder: Path, number: str, *words: str) -> None:
    """Begin, or resume; kill fab by itself while the run of that number trains.

    All that it started ends too.
    """
    process = typed(folder, "sweep", "s.yaml", *words)
    until(lambda: has_checkpoint(folder, number), process)
    below = [one for driver in children(process.pid) for one in (driver, *children(driver))]
    assert len(below) > 1
    process.kill()
    process.communicate()
    eventually(lambda: gone(below), f"the end of {below}, which fab started", 300.0)
    assert record_of(folder).state == "running", "nobody was left to write that it ended"


def disturbed(folder: Path) -> None:
    """fab is killed in the first run, then in the second; then the driver in the third."""
    kill_fab(folder, "0001")
    kill_fab(folder, "0002", "--resume")
    process = typed(folder, "sweep", "s.yaml", "--resume")
    until(lambda: has_checkpoint(folder, "0003"), process)
    kill(children(process.pid))
    ended(process)


@pytest.mark.parametrize("text", [GRID, SEARCH], ids=["grid", "search"])
def test_killing_fab_and_the_driver_changes_nothing(tmp_path: Path, text: str) -> None:
    # With several workers, the draws of a search depend on who is first.
    calm, killed = (prepared(tmp_path / name, text) for name in ("calm", "killed"))
    with ThreadPoolExecutor() as pool:
        in_peace = pool.submit(lambda: ended(typed(calm, "sweep", "s.yaml")))
        disturbed(killed)
        in_peace.result()
    expected, found = record_of(calm), record_of(killed)
    assert len(list(killed.glob("runs/*-sweep"))) == 1
    assert found.state == expected.state == "finished"
    assert table_of(found) == table_of(expected)
    assert len(found.runs) == 3
    assert any(run.state == "finished" for run in expected.runs)
    assert bits_of(killed, found) == bits_of(calm, expected)
