"""A finished run of a small network on invented windows, as a training leaves it."""

import json
import subprocess
import sys
from pathlib import Path

from cluster.inventory.templates import local_inventory
from deploy.common.project import ROOT, environment_for_any_folder
from tests.jobs.cluster import own_recordings

SETTINGS = (
    "jobs.train.mode=single", "jobs.train.micro_batches=2", "jobs.train.epochs=1", "jobs.train.batch_size=20",
    "jobs.train.model.hidden=8", "jobs.train.model.layers=1",
)  # fmt: skip


def trained(folder: Path, *settings: str, model: str = "residual", job: str = "train") -> Path:
    """The folder of a run, made by a real coordinator."""
    (folder / "inventory.yaml").write_text(local_inventory(1, 1), encoding="utf-8")
    mine = folder / "mine.npz"
    if not mine.exists():
        own_recordings(mine, classes=3, channels=3, steps=16, train=240, test=30)
    named = (f"jobs.train.data.source={mine}", f"runs={folder / 'runs'}", f"jobs.train.model.name={model}")
    flags = [*named, *SETTINGS, *settings]
    words = [sys.executable, "-m", "cluster", job, "--inventory", str(folder / "inventory.yaml"), "--quiet"]
    words += [word for flag in flags for word in ("--set", flag)]
    ended = subprocess.run(words, cwd=ROOT, env=environment_for_any_folder(), capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return max((folder / "runs").glob(f"*-{job}"))


def status(run: Path, value: str) -> None:
    """Change what the run says of itself."""
    path = run / "result.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "status": value}))
