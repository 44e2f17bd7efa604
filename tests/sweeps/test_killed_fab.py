"""SIGKILL of `fab` itself, and of what drives a search: after `--resume` the table is that of a sweep in peace."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cluster.inventory.templates import local_inventory
from tests.jobs.cluster import own_recordings
from tests.sweeps.swept import (
    LONGEST_SECONDS,
    SWEEP,
    bits_of,
    children,
    ended,
    kill,
    newest,
    record_of,
    table_of,
    typed,
    until,
)

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

SEARCH = """
base:
  jobs.train.model.n_stacked_layers: 1
  jobs.train.model.hidden: 8
  jobs.train.batch_size: 20
  jobs.train.micro_batches: 2
  jobs.train.epochs: 40
  jobs.train.validation_subjects: 1
  jobs.train.checkpoint.every_seconds: 0.5
search:
  trials: 3
  sampler: tpe
  pruner: median
  space: {jobs.train.optimizer.learning_rate: {low: 1e-3, high: 1e-2, log: true}}
seeds: [3]
"""


def folder_with(folder: Path, text: str) -> Path:
    """One worker: the draws of a search depend on who is first where there are several."""
    folder.mkdir()
    (folder / "inventory.yaml").write_text(local_inventory(1, 1) + "page: {listen: 'off'}\n")
    own_recordings(folder / "mine.npz")
    (folder / "s.yaml").write_text(text)
    return folder


def gone(pids: list[int]) -> None:
    end = time.monotonic() + LONGEST_SECONDS
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < end, f"{pids} outlived fab"
        time.sleep(0.05)


def running(folder: Path, number: str) -> bool:
    """Whether this run is being trained and has a checkpoint."""
    found = newest(folder)
    return found is not None and any(found.glob(f"runs/{number}/*/checkpoints/update-*.json"))


def kill_fab(folder: Path, number: str, *words: str) -> None:
    """Begin, or resume; kill fab by itself while the run of that number trains. All that it started ends too."""
    process = typed(folder, "sweep", "s.yaml", *words)
    until(lambda: running(folder, number), process)
    below = [one for driver in children(process.pid) for one in (driver, *children(driver))]
    assert len(below) > 1
    process.kill()
    process.communicate()
    gone(below)
    assert record_of(folder).state == "running", "nobody was left to write that it ended"


def disturbed(folder: Path) -> None:
    """fab is killed in the first run, then in the second; then the driver in the third."""
    kill_fab(folder, "0001")
    kill_fab(folder, "0002", "--resume")
    process = typed(folder, "sweep", "s.yaml", "--resume")
    until(lambda: running(folder, "0003"), process)
    kill(children(process.pid))
    said, _ = process.communicate(timeout=LONGEST_SECONDS)
    assert process.returncode == 0, said


@pytest.mark.parametrize("text", [SWEEP, SEARCH], ids=["grid", "search"])
def test_killing_fab_and_the_driver_changes_nothing(tmp_path: Path, text: str) -> None:
    calm, killed = folder_with(tmp_path / "calm", text), folder_with(tmp_path / "killed", text)
    with ThreadPoolExecutor() as pool:
        in_peace = pool.submit(lambda: ended(typed(calm, "sweep", "s.yaml")))
        disturbed(killed)
        in_peace.result()
    expected, found = record_of(calm), record_of(killed)
    assert len(list(killed.glob("runs/*-sweep"))) == 1
    assert found.state == expected.state == "finished"
    assert table_of(found) == table_of(expected)
    assert len(table_of(found)) == 3
    done = [run for run in expected.runs if run.state == "finished"]
    assert bits_of(killed, found) == bits_of(calm, expected)
    assert done
