"""Checkpoints: what a training run goes on from, as named arrays and JSON; knows neither jobs nor models.

The room's doors are `Checkpoint`, `CheckpointStore` for the one process that writes, and `read_newest` for readers.
"""

from cluster.checkpoints.checkpoint import Checkpoint
from cluster.checkpoints.reading import read_newest
from cluster.checkpoints.store import CheckpointStore

__all__ = ["Checkpoint", "CheckpointStore", "read_newest"]
