"""What a cross-validation left, read from its folder."""

from functools import cached_property
from pathlib import Path
from typing import Any

from core.ground.errors import ClusterError, UsageError
from core.ground.files import read_json

NAME = "cv.json"


class CrossValidation:
    """A cross-validation by its folder, e.g. `CrossValidation("runs/20260131T120000Z-cv")`.

    Raises UsageError for another folder.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if not (self.folder / NAME).is_file():
            raise UsageError(
                f"{self.folder}: expected the folder of a cross-validation, found no {NAME} in it"
            )

    @cached_property
    def record(self) -> dict[str, Any]:
        """`cv.json`, whose keys docs/jobs.md explains. Raises ClusterError for a damaged file."""
        file = self.folder / NAME
        try:
            record = read_json(file)
            if not isinstance(record["summary"], dict) or not isinstance(record["folds"], list):
                raise TypeError("summary or folds")
        except (ValueError, KeyError, TypeError) as problem:
            raise ClusterError(
                f"{file}: expected the folds of a cross-validation: {problem!r:.100}"
            ) from problem
        return dict(record)

    @property
    def mean(self) -> float:
        """Mean over seeds and folds of the accuracy, or of the loss where the task has none."""
        return float(self.record["summary"]["mean"])

    @property
    def spread_over_folds(self) -> float | None:
        """Standard deviation of the folds' means."""
        return _number(self.record["summary"]["spread_over_folds"])

    @property
    def spread_over_seeds(self) -> float | None:
        """Standard deviation of the seeds' means; None with one seed."""
        return _number(self.record["summary"]["spread_over_seeds"])

    @property
    def groups(self) -> dict[int, float]:
        """Accuracy by held-out group, such as a person."""
        return {
            int(group): float(value) for group, value in self.record["summary"]["groups"].items()
        }

    @property
    def folds(self) -> list[dict[str, Any]]:
        """Every training: its seed, fold, groups, figures and confusion matrix."""
        return list(self.record["folds"])

    def __repr__(self) -> str:
        return f"CrossValidation({str(self.folder)!r})"


def _number(value: Any) -> float | None:
    if value is None:
        return None
    return float(value)
