"""The trials of a search: Optuna draws settings and ends runs early, in the sweep's study.

The study is an SQLite file, so that another driver resumes it. Optuna is an optional package.
"""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cluster.pages.files import OVER, RunRecord
from cluster.sweeps.plan import FixedRuns, run_id
from cluster.sweeps.progress import Epoch
from cluster.sweeps.sweep_file import Range, Search
from core.ground.errors import ClusterError

if TYPE_CHECKING:
    import optuna

STUDY = "study.db"
NAME = "sweep"


class Trials(FixedRuns):
    """The study of one sweep. Trial 0 is run 0001."""

    def __init__(
        self, search: Search, folder: Path, seed: int, earlier_runs: Sequence[RunRecord] = ()
    ) -> None:
        """Open the study of the folder, or begin it.

        `earlier_runs` are the runs that there are, of an earlier driver.

        Raises ClusterError where Optuna is missing, or the study cannot be read.
        """
        try:
            import optuna
        except ImportError:
            raise ClusterError(
                "search: expected the package optuna, found none: `fab sweep` brings it"
            ) from None
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        warnings.filterwarnings(
            "ignore", category=optuna.exceptions.ExperimentalWarning
        )  # of constant_liar, below
        self._optuna = optuna
        self._search = search
        self._seed = seed
        path = folder / STUDY
        try:
            self._study = self._study_at(path)
        except Exception as problem:  # SQLAlchemy's and alembic's own, for a damaged file
            raise ClusterError(
                f"{path}: expected the study of this search, got {type(problem).__name__}"
            ) from None
        self._run_ids = {run.id for run in earlier_runs}
        for run in earlier_runs:
            if run.state in OVER:
                self.over(run)

    def _study_at(self, path: Path) -> Any:
        optuna = self._optuna
        search = self._search
        storage = optuna.storages.RDBStorage(f"sqlite:///{path.resolve()}")
        pruner = {
            "none": optuna.pruners.NopPruner,
            "median": optuna.pruners.MedianPruner,
            "asha": optuna.pruners.SuccessiveHalvingPruner,
        }[search.pruner]()
        if search.maximizes:
            direction = "maximize"
        else:
            direction = "minimize"
        study = optuna.create_study(
            storage=storage,
            sampler=self._sampler(0, 0),
            pruner=pruner,
            study_name=NAME,
            direction=direction,
            load_if_exists=True,
        )
        return study

    def _sampler(self, number: int, place: int) -> Any:
        """Return the sampler for one value of one trial, which depends on the study alone.

        So any driver draws the same.
        """
        samplers = self._optuna.samplers
        seed = int(np.random.SeedSequence([self._seed, number, place]).generate_state(1)[0])
        if self._search.sampler == "tpe":
            return samplers.TPESampler(seed=seed, constant_liar=True)
        return samplers.RandomSampler(seed=seed)

    @property
    def to_come(self) -> int:
        """Runs that are not drawn yet."""
        return max(0, self._search.trials - len(self._run_ids))

    def next_run(self) -> RunRecord | None:
        """The next trial as a run; None once there are all."""
        if not self.to_come:
            return None
        running = self._optuna.trial.TrialState.RUNNING
        # Drawn by a driver that died before it took it down.
        lost_trials = (
            stored
            for stored in self._study.get_trials(deepcopy=False)
            if run_id(stored.number + 1) not in self._run_ids
        )
        lost_trial = next((stored for stored in lost_trials if stored.state == running), None)
        if lost_trial is None:
            trial = self._study.ask()
        else:
            trial = self._trial(lost_trial.number)
        settings = {}
        for place, (key, dimension) in enumerate(self._search.space.items()):
            self._study.sampler = self._sampler(trial.number, place)
            settings[key] = _suggested_value(trial, key, dimension)
        run = RunRecord(run_id(trial.number + 1), settings, self._seed)
        self._run_ids.add(run.id)
        return run

    def epoch_ended(self, run: RunRecord, epoch: Epoch) -> str:
        """Why to end the run now; empty to let it run."""
        value = epoch.validation.get(self._search.metric)
        if value is None or self._search.pruner == "none":
            return ""
        number = int(run.id) - 1
        stored = self._study.get_trials(deepcopy=False)[number]
        if stored.state.is_finished():
            return ""
        trial = self._trial(number)
        if epoch.epoch not in stored.intermediate_values:
            trial.report(value, epoch.epoch)
        if not trial.should_prune():
            return ""
        figure = f"validation {self._search.metric} {value:.4f}"
        return f"ended early after epoch {epoch.epoch}: {figure} ({self._search.pruner})"

    def over(self, run: RunRecord) -> None:
        """The run is over, with its figures on the validation where it has some."""
        number = int(run.id) - 1
        if number >= len(self._study.get_trials(deepcopy=False)):
            return
        states = self._optuna.trial.TrialState
        value = (run.selected or {}).get(self._search.metric)
        if run.state == "finished" and value is not None:
            self._study.tell(number, value, skip_if_finished=True)
        else:
            if run.state == "pruned":
                state = states.PRUNED
            else:
                state = states.FAIL
            self._study.tell(number, state=state, skip_if_finished=True)

    def _trial(self, number: int) -> "optuna.Trial":
        stored_trial = self._study.get_trials(deepcopy=False)[number]
        return self._optuna.trial.Trial(self._study, stored_trial._trial_id)


def _suggested_value(trial: "optuna.Trial", key: str, dimension: Any) -> Any:
    if not isinstance(dimension, Range):
        return trial.suggest_categorical(key, dimension)
    low, high = dimension.ends
    if dimension.whole:
        step = int(dimension.step or 1)
        return trial.suggest_int(key, int(low), int(high), step=step, log=dimension.log)
    return trial.suggest_float(key, low, high, step=dimension.step, log=dimension.log)
