"""Which rows of a data set a training learns from, and which it holds out to choose the epoch."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.data import Dataset, split_validation
from core.data.dataset import CLASSIFICATION
from core.data.split import held_out_whole
from core.ground.errors import UsageError
from core.inventory.training import TrainJob


@dataclass(frozen=True)
class TrainRows:
    """The rows of the training part, split. `notes` warn about the split and the test set."""

    train: NDArray[np.integer]
    validation: NDArray[np.integer]
    notes: Sequence[str]

    @classmethod
    def of(cls, dataset: Dataset, job: TrainJob) -> "TrainRows":
        """Split the training part. Raises UsageError where early stopping has nothing to go by."""
        notes = []
        if dataset.held_out.leak:
            notes.append(f"the test set: {dataset.held_out.leak}")
        training_part = slice(dataset.train_windows)
        classes = None
        if dataset.task == CLASSIFICATION and not dataset.targets.shape:  # one class an example
            classes = dataset.classes()[training_part]
        train, validation = split_validation(
            dataset.subjects()[training_part], job.validation_subjects, job.seed, classes
        )
        if classes is not None and (line := held_out_whole(classes, train, dataset.labels)):
            notes.append(line)
        if job.early_stopping is not None and not len(validation):
            raise UsageError(
                "jobs.train.early_stopping: it goes by the validation, for which these"
                f" {dataset.train_windows} training windows are too few: set it to null, or"
                " use more recordings"
            )
        return cls(train, validation, notes)
