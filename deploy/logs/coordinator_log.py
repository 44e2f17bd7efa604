"""The coordinator's log: it lies in the folder of each run, and the one that is written to is the present one."""

import time
from pathlib import Path

NAME = "coordinator.log"
LOOK_SECONDS = 1.0


class CoordinatorLog:
    """The log of the run of that name, or of whichever run was written to last: with a new run it is another file."""

    def __init__(self, runs: Path, name: str, run: str = "") -> None:
        self.name = name
        self._runs, self._run = runs, run
        self._found: tuple[float, Path] | None = None

    @property
    def path(self) -> Path:
        """Where it lies; where it would lie if there is none yet. Looked for once a second at most."""
        now = time.monotonic()
        if self._found is None or now - self._found[0] >= LOOK_SECONDS:
            self._found = now, self._find()
        return self._found[1]

    def _find(self) -> Path:
        if self._run:
            return self._runs / self._run / NAME
        return max(self._runs.glob(f"*/{NAME}"), key=_written, default=self._runs / NAME)

    def newest_runs(self, count: int) -> list[str]:
        """Names of the latest runs, for a message."""
        return sorted((path.parent.name for path in self._runs.glob(f"*/{NAME}")), reverse=True)[:count]


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
