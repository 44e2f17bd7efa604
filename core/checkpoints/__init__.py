"""Checkpoints, from which a training run resumes: named arrays and JSON, without jobs and models.

The room offers `Checkpoint`, `CheckpointStore` for the one process that writes, `read_newest` for
readers, and `WriterLock` for any other folder with one writer, and `Superseded` for a writer that
lost it.
"""

from core.checkpoints.manifest import Checkpoint
from core.checkpoints.store import CheckpointStore, read_newest
from core.checkpoints.writer_lock import Superseded, WriterLock

__all__ = ["Checkpoint", "CheckpointStore", "Superseded", "WriterLock", "read_newest"]
