"""A finished run of a small network on invented windows, as a training leaves it."""

from pathlib import Path

from core.inventory.templates import local_inventory
from tests.cluster.jobs.cluster import own_recordings
from tests.ran import python

SETTINGS = (
    "jobs.train.model.name=residual",
    "jobs.train.mode=single",
    "jobs.train.slots=2",
    "jobs.train.epochs=1",
    "jobs.train.batch_size=20",
    "jobs.train.model.hidden=8",
    "jobs.train.model.layers=1",
)


def trained(folder: Path, *settings: str) -> Path:
    """The folder of a run, made by a real coordinator."""
    (folder / "inventory.yaml").write_text(local_inventory(1, 1), encoding="utf-8")
    mine = folder / "mine.npz"
    if not mine.exists():
        own_recordings(mine, classes=3, channels=3, steps=16, train=240, test=30)
    flags = [
        f"jobs.train.data.source={mine}",
        f"runs={folder / 'runs'}",
        *SETTINGS,
        *settings,
    ]
    words = [word for flag in flags for word in ("--set", flag)]
    inventory = folder / "inventory.yaml"
    python("-m", "cluster", "train", "--quiet", "--inventory", inventory, *words)
    return max((folder / "runs").glob("*-train"))
