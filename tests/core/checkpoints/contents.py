"""Checkpoints that tell on themselves.

Each says in its tensors and in its facts which one it is.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from core.checkpoints import Checkpoint, read_newest

PROJECT = Path(__file__).resolve().parents[3]


def numbered(version: int, update: int | None = None, size: int = 100, **facts: Any) -> Checkpoint:
    """The checkpoint of `version`: `size` elements in each of two arrays that all are `version`."""
    return Checkpoint(
        update=version if update is None else update,
        tensors={
            "weights": np.full(size, version, np.float32),
            "slot": np.full((2, size), version, np.int64),
        },
        facts={"version": version, **facts},
    )


def version_of(checkpoint: Checkpoint) -> int:
    """The version, if every part of the checkpoint agrees on it."""
    version = checkpoint.facts["version"]
    assert isinstance(version, int)
    assert set(checkpoint.tensors) == {"weights", "slot"}
    assert all((array == version).all() for array in checkpoint.tensors.values())
    return version


def newest(folder: Path) -> tuple[int, tuple[str, ...]]:
    """The version of the newest whole checkpoint, and the lines about those that are refused."""
    found, refused = read_newest(folder)
    assert found is not None
    return version_of(found), refused


def files(folder: Path) -> Mapping[str, bytes]:
    """Name and content of every file but the lock."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}
