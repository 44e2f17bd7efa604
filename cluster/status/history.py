"""`history.jsonl` in a run's folder, read back."""

from pathlib import Path

from cluster.status.view import RunView


def read_run(folder: Path) -> RunView:
    """The picture of a run that is finished or broken, from the files in its folder alone.

    Raises UsageError if the folder holds no run.
    """
    raise NotImplementedError
