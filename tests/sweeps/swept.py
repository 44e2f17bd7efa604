"""A small sweep on two workers, as a person types it; what came of it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from cluster.inventory.templates import local_inventory
from cluster.sweeps.record import SweepRecord, read_record
from deploy.common.project import ROOT
from tests.jobs.cluster import own_recordings

Found = TypeVar("Found")
FAB = Path(sys.executable).with_name("fab")
LONGEST_SECONDS = 300.0
SWEEP = """
base:
  jobs.train.model.n_stacked_layers: 1
  jobs.train.model.hidden: 8
  jobs.train.batch_size: 20
  jobs.train.epochs: 40
  jobs.train.checkpoint.every_seconds: 1
grid: {jobs.train.optimizer.learning_rate: [0.002, 0.004, 0.008]}
seeds: [3]
"""


def prepared(folder: Path) -> Path:
    """Its folder, with an inventory, recordings and the file of the sweep."""
    (folder / "inventory.yaml").write_text(local_inventory(2, 1) + "page: {listen: 'off'}\n")
    own_recordings(folder / "mine.npz")
    (folder / "s.yaml").write_text(SWEEP)
    return folder


def environment(folder: Path) -> dict[str, str]:
    return {
        **os.environ,
        "XDG_CACHE_HOME": str(folder / "cache"),
        "PSCLUSTER_INVENTORY": str(folder / "inventory.yaml"),
    }


def typed(folder: Path, *words: str) -> subprocess.Popen[str]:
    data = ["--set", f"jobs.train.data.source={folder / 'mine.npz'}"]
    return subprocess.Popen(
        [str(FAB), "-r", str(ROOT), *words, *data], cwd=folder, env=environment(folder), stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def ended(process: subprocess.Popen[str]) -> str:
    said, _ = process.communicate(timeout=LONGEST_SECONDS)
    assert process.returncode == 0, said
    return said


def newest(folder: Path) -> Path | None:
    return max(folder.glob("runs/*-sweep*"), default=None)


def record_of(folder: Path) -> SweepRecord:
    found = newest(folder)
    assert found is not None
    return read_record(found)


def table_of(record: SweepRecord) -> list[tuple[object, ...]]:
    """What has to be the same whatever was killed."""
    return [(run.id, dict(run.settings), run.seed, run.state, dict(run.final or {})) for run in record.runs]


def bits_of(folder: Path, record: SweepRecord) -> list[str]:
    found = newest(folder)
    assert found is not None
    results: list[dict[str, Any]] = [
        json.loads((found / str(run.folder) / "result.json").read_text()) for run in record.runs
    ]
    return [str(result["parameters_sha256"]) for result in results]


def children(pid: int) -> list[int]:
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def until(look: Callable[[], Found], process: subprocess.Popen[str]) -> Found:
    """What `look` finds, awaited while the process runs."""
    end = time.monotonic() + LONGEST_SECONDS
    while not (found := look()):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end
        time.sleep(0.05)
    return found


def kill(pids: Sequence[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
