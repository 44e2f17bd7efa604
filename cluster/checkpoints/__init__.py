"""Checkpoints: what a training run goes on from, as named arrays and JSON; knows neither jobs nor models.

The room's doors are `Checkpoint`, `CheckpointStore` for the one process that writes, `read_newest` for readers, and
`WriterLock` for whatever else has one writer a folder.
"""

from cluster.checkpoints.manifest import Checkpoint
from cluster.checkpoints.reading import read_newest
from cluster.checkpoints.store import CheckpointStore, WriterLock

__all__ = ["Checkpoint", "CheckpointStore", "WriterLock", "read_newest"]
