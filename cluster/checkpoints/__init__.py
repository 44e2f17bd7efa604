"""Checkpoints, from which a training run resumes: named arrays and JSON, without jobs and models.

The room offers `Checkpoint`, `CheckpointStore` for the one process that writes, `read_newest` for readers, and
`WriterLock` for any other folder with one writer.
"""

from cluster.checkpoints.manifest import Checkpoint
from cluster.checkpoints.store import CheckpointStore, WriterLock, read_newest

__all__ = ["Checkpoint", "CheckpointStore", "WriterLock", "read_newest"]
