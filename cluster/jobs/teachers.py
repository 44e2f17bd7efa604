"""The teachers of a training: found in a run, compared with the student's rows, and kept.

A copy lies beside the student's run. A model that has seen a window which its student holds out
would carry it into the student: such a teacher is refused. So a training has one teacher, and each
fold of a cross-validation has its own, of a cross-validation of the teacher.
"""

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster.jobs.evaluate import shown
from cluster.jobs.run_folder import is_finished
from cluster.jobs.train_result import CONFIGURATION, StoredModel, digest_of, load, store
from cluster.jobs.trained_on import TrainedOn
from core.atomic_write import refused
from core.data import Dataset
from core.errors import UsageError
from core.models.distillation import Teacher
from core.models.network import BuiltIn

KEY = "jobs.train.distill.run"
MODEL = "model"
MODELS = "models"
KEPT = "teachers"
"""Folders of a run: of a training's model, of a cross-validation's models, of the copies of its
teachers."""


def model_of_fold(seed: int, fold: int) -> str:
    """The folder of a fold's model, below `MODELS`."""
    return f"seed-{seed}-fold-{fold + 1}"


@dataclass(frozen=True, eq=False)
class Candidate:
    """A stored model that may teach: its folder's name, and whose windows it has seen."""

    name: str
    model: StoredModel
    trained_on: TrainedOn

    def taught_by(self) -> Teacher:
        """As graphs take it."""
        network = self.model.network
        assert isinstance(network, BuiltIn)
        return Teacher(network, self.model.vector, self.model.standardization.packed())

    def describe(self) -> dict[str, Any]:
        """An entry of `teachers` in a result."""
        return {
            "name": self.name,
            "model": self.model.network.describe(),
            "parameters_sha256": digest_of(self.model.vector),
            "trained_on": list(self.trained_on.groups) or None,
        }


class Teachers:
    """The models of a finished run, for students on one data set; the chosen ones, in order."""

    def __init__(
        self, named: str, runs: Path, dataset: Dataset, resumed: Path | None = None
    ) -> None:
        """`named`: a folder, or its name in `runs`; a `resumed` run has its teachers beside it.

        Raises UsageError if it is no run with models that can teach on this data.
        """
        self.chosen: list[Candidate] = []
        self._dataset = dataset
        if resumed is None:
            kept = None
        else:
            kept = resumed / KEPT
        if kept is not None and kept.is_dir():
            self._run, folders = (
                kept,
                sorted(path.parent for path in kept.glob(f"*/{CONFIGURATION}")),
            )
        else:
            self._run = _found(named, runs)
            folders = _models(self._run)
        self._candidates = [self._checked(folder) for folder in folders]

    def _checked(self, folder: Path) -> Candidate:
        why = f"its model is an app, and built-in networks teach: name a run of one with {KEY}"
        model = load(folder, named_by=KEY, built_in=why)
        dataset = self._dataset
        network = model.network
        problem = network.problem
        if (problem.input_shape, model.labels) != (dataset.input_shape, dataset.labels):
            raise UsageError(
                f"{folder}: the teacher takes windows of {shown(problem.input_shape)} of the"
                f" classes {', '.join(model.labels)}; {dataset.source} has"
                f" {shown(dataset.input_shape)} of {', '.join(dataset.labels)}: name a teacher of"
                f" such windows with {KEY}"
            )
        if model.dataset_sha256 != dataset.sha256:
            raise UsageError(
                f"{folder}: the teacher was trained on other recordings than {dataset.source}, so"
                f" it may have seen anyone: name one that was trained on these with {KEY}"
            )
        if model.trained_on is None:
            raise UsageError(
                f"{folder}: does not say whose windows it was trained on, as models of this version"
                " do: train the teacher again"
            )
        return Candidate(folder.name, model, model.trained_on)

    def place_for(self, rows: NDArray[np.integer], seed: int) -> int:
        """Return the place in `chosen` of the teacher for these rows.

        Of those that fit it is the one that has seen most, of several equal ones that of the same
        seed, else the first. Raises UsageError if none fits.
        """
        student = TrainedOn.of(self._dataset, rows)
        all_rows = student.windows == self._dataset.train_windows
        fitting = [
            each for each in self._candidates if all_rows or not each.trained_on.beyond(student)
        ]
        if not fitting:
            raise self._leak(student)
        most = max(each.trained_on.windows for each in fitting)
        equal = [each for each in fitting if each.trained_on.windows == most]
        same_seed = [each for each in equal if each.name.startswith(f"seed-{seed}-")]
        best = (same_seed or equal)[0]
        if best not in self.chosen:
            self.chosen.append(best)
        return self.chosen.index(best)

    def _leak(self, student: TrainedOn) -> UsageError:
        nearest = min(self._candidates, key=lambda each: len(each.trained_on.beyond(student)))
        seen = nearest.trained_on.beyond(student)
        if len(self._candidates) > 1:
            return UsageError(
                f"{self._run}: each of its {len(self._candidates)} models has seen"
                f" {seen or 'windows'} or others that this fold holds out: cross-validate the"
                " teacher with the same jobs.cv.folds and jobs.cv.split_seed"
            )
        return UsageError(
            f"{self._run}: the teacher has seen {seen}, which this training holds out: hold out the"
            " same ones in both (jobs.train.validation_subjects), or none; for `fab job cv` name a"
            " cross-validation of the teacher with jobs.cv.keep_models"
        )

    @property
    def taught_by(self) -> list[Teacher]:
        """The chosen ones, in order."""
        return [each.taught_by() for each in self.chosen]

    def keep(self, run: Path) -> None:
        """Copy the chosen ones beside their students' run, all or none. Raises ClusterError."""
        target = run / KEPT
        partial = run / f".{KEPT}.{os.getpid()}.partial"
        if target.is_dir():
            return
        try:
            partial.mkdir()
            for each in self.chosen:
                model = each.model
                store(
                    partial / each.name,
                    model.network,
                    model.vector,
                    model.standardization,
                    model.labels,
                    model.dataset_sha256,
                    each.trained_on,
                    model.signals,
                )
            partial.rename(target)
        except OSError as problem:
            raise refused(
                target, "the run's copy of its teachers cannot be written", problem
            ) from None
        finally:
            with suppress(OSError):
                shutil.rmtree(partial)

    def describe(self) -> list[dict[str, Any]]:
        """The entry `teachers` of a result."""
        return [each.describe() for each in self.chosen]


def _found(named: str, runs: Path) -> Path:
    places = list(dict.fromkeys((Path(named), runs / named)))
    for place in places:
        if place.is_dir():
            if not is_finished(place):
                raise UsageError(
                    f"{place}: expected a finished run as the teacher: resume it, or name another"
                    f" with {KEY}"
                )
            return place
    if len(places) == 1:
        words = f"found {' nor '.join(map(str, places))}"
    else:
        words = f"found neither {places[0]} nor {places[1]}"
    raise UsageError(
        f"{KEY}: expected the folder of a finished run, {words}: train the teacher first"
    )


def _models(run: Path) -> list[Path]:
    if (run / MODEL / CONFIGURATION).exists():
        return [run / MODEL]
    found = sorted(path.parent for path in (run / MODELS).glob(f"*/{CONFIGURATION}"))
    if not found:
        raise UsageError(
            f"{run}: has no model that could teach: name a training, or a cross-validation with "
            "jobs.cv.keep_models=true"
        )
    return found
