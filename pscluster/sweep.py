"""What a sweep left, read from its folder."""

from pathlib import Path
from typing import Any

from cluster.pages.files import read_sweep
from cluster.sweeps.table import text_table
from pscluster.run import Run


class Sweep:
    """A sweep by its folder, e.g. `Sweep("runs/20260131T120000Z-sweep")`.

    Raises UsageError for another folder.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._record = read_sweep(self.folder)

    @property
    def runs(self) -> list[dict[str, Any]]:
        """The runs of `sweep.json`, whose keys docs/sweeps.md explains."""
        runs: list[dict[str, Any]] = self._record.to_json()["runs"]
        return runs

    @property
    def table(self) -> list[list[str]]:
        """Header and rows as the terminal shows them: mean and deviation over the seeds."""
        return text_table(self._record)

    def run(self, name: str) -> Run:
        """Return the training of one run, e.g. `sweep.run("0001")`.

        Raises UsageError where it has left none.
        """
        folders = {run.id: run.folder for run in self._record.runs}
        return Run(self.folder / str(folders.get(name) or name))

    def __repr__(self) -> str:
        return f"Sweep({str(self.folder)!r})"
