"""A small sweep on two workers, as a person types it; what came of it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from cluster.sweeps.record import SweepRecord, read_record
from core.inventory.templates import local_inventory
from deploy.common.project import ROOT
from tests.cluster.jobs.cluster import own_recordings

Found = TypeVar("Found")
FAB = Path(sys.executable).with_name("fab")
LONGEST_SECONDS = 300.0
SMALL = """
base:
  jobs.train.model.n_stacked_layers: 1
  jobs.train.model.hidden: 8
  jobs.train.batch_size: 20
"""
"""How the file of a sweep of a small network begins."""


def prepared(folder: Path, sweep: str, workers: int = 1) -> Path:
    """Its folder, with an inventory, recordings and the file of the sweep."""
    folder.mkdir(exist_ok=True)
    page = "page: {listen: 'off'}\n"
    (folder / "inventory.yaml").write_text(local_inventory(workers, 1) + page)
    own_recordings(folder / "mine.npz")
    (folder / "s.yaml").write_text(sweep)
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
        [str(FAB), "-r", str(ROOT), *words, *data],
        cwd=folder,
        env=environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def ended(process: subprocess.Popen[str], code: int = 0) -> str:
    """What it said until it ended so."""
    said, _ = process.communicate(timeout=LONGEST_SECONDS)
    assert process.returncode == code, said
    return said


def record_of(folder: Path) -> SweepRecord:
    return read_record(max(folder.glob("runs/*-sweep*")))


def has_checkpoint(folder: Path, run: str = "000*") -> bool:
    """Whether such a run of the newest sweep has one."""
    found = sorted(folder.glob("runs/*-sweep*"))
    pattern = f"runs/{run}/*/checkpoints/update-*.json"
    return bool(found) and any(found[-1].glob(pattern))


def gone(pids: Sequence[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


def table_of(record: SweepRecord) -> list[tuple[object, ...]]:
    """What has to be the same whatever was killed."""
    return [
        (run.id, dict(run.settings), run.seed, run.state, dict(run.final or {}))
        for run in record.runs
    ]


def bits_of(folder: Path, record: SweepRecord) -> list[str]:
    sweep = max(folder.glob("runs/*-sweep*"))
    paths = [sweep / str(run.folder) / "result.json" for run in record.runs]
    return [str(json.loads(path.read_text())["parameters_sha256"]) for path in paths]


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
