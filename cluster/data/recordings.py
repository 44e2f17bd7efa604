"""Windows as every reader returns them, and the checks none of them may skip."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cluster.errors import DataError

NO_SUBJECT = -1
"""The subject of a window whose source does not say who was recorded."""


@dataclass(frozen=True)
class Recordings:
    """Labelled windows, the training rows first.

    windows: float32 (N, steps, channels) in the source's own units; classes: int32 (N,), zero-based into `labels`;
    subjects: int32 (N,), `NO_SUBJECT` where unknown; the first `train_windows` rows are for training.
    """

    windows: NDArray[np.float32]
    classes: NDArray[np.int32]
    subjects: NDArray[np.int32]
    train_windows: int
    labels: tuple[str, ...]

    @property
    def test_windows(self) -> int:
        """Rows held out for the final test."""
        return len(self.windows) - self.train_windows


def check(recordings: Recordings, where: str) -> Recordings:
    """The same recordings, once they can be trained on.

    Raises DataError naming `where`: an empty set, a class without training windows, a subject in both sets, a value
    that is not finite.
    """
    train = recordings.train_windows
    for name, count in (("training", train), ("test", recordings.test_windows)):
        if count == 0:
            raise DataError(f"{where}: expected at least one {name} window, got none; add {name} recordings")
    in_training = np.bincount(recordings.classes[:train], minlength=len(recordings.labels))
    for index in np.flatnonzero(in_training == 0):
        raise DataError(
            f"{where}: class {index} ({recordings.labels[index]!r}) has no training window; record some, use a "
            f"shorter window, or remove the class"
        )
    subjects = recordings.subjects
    shared = np.intersect1d(subjects[:train], subjects[train:])
    shared = shared[shared != NO_SUBJECT]
    if shared.size:
        raise DataError(
            f"{where}: subject {int(shared[0])} is in the training and in the test set, so the test would reward "
            f"recognizing a person; keep each subject in one set"
        )
    finite = np.isfinite(recordings.windows).all(axis=(1, 2))
    if not finite.all():
        raise DataError(
            f"{where}: window {int(np.argmin(finite))} holds a value that is not finite; remove or repair it"
        )
    return recordings
