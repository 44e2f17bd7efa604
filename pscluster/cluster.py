"""A cluster from Python: the commands of `fab`, each in a process of its own."""

import json
import os
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from shutil import rmtree
from typing import Any, Self

from core.ground.errors import ClusterError, UsageError
from core.ground.ports import MOST_ROLES
from deploy.common.command_line import settings as set_flags
from deploy.common.project import OWNER
from deploy.common.state_folder import StateFolder
from pscluster.app_folder import AppParts, app_flags, settings_of
from pscluster.commands import Cancelled, run, show
from pscluster.run import CrossValidation, Run, Sweep

STATUS_KNOWN = (0, 3)
"""Exit codes with which `deploy status` has an answer."""
FUNCTIONS = ("loss", "metrics", "augment", "task")
"""Settings that are part of an app, not of the inventory."""


class Cluster:
    """The cluster of an inventory file.

    `with` starts its roles if none runs, and stops the roles that it started.

    `settings` override keys of the inventory, e.g. `{"jobs.train.batch_size": 64}`. `report` gets
    the lines of progress; they go to standard error by default. Raises UsageError without such a
    file.
    """

    def __init__(
        self,
        inventory: str | Path,
        *,
        settings: Mapping[str, Any] | None = None,
        report: Callable[[str], None] = show,
    ) -> None:
        self.inventory = Path(inventory)
        if not self.inventory.is_file():
            raise UsageError(
                f"{self.inventory}: no such file: expected an inventory; `pscluster init --local"
                f" --out {self.inventory}` writes one, `pscluster.local()` needs none"
            )
        self._settings = dict(settings or {})
        self._report = report
        self._ends = ExitStack()

    def __enter__(self) -> Self:
        # A signal may end this process without `__exit__`; roles on this machine then end with it.
        self._start({OWNER: str(os.getpid())})
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def start(self) -> None:
        """Start the roles, as `with` does. A running cluster stays as it is.

        Raises ClusterError.
        """
        self._start({})

    def _start(self, variables: Mapping[str, str]) -> None:
        if self.status()["state"] == "stopped":
            self._ends.callback(self.stop)
            try:
                run(
                    self._arguments("deploy", "start", "--no-jobs"),
                    self._report,
                    variables=variables,
                )
            except BaseException:
                self._ends.close()
                raise

    def stop(self) -> None:
        """Interrupt a running job, then stop the roles. Raises ClusterError."""
        run(self._arguments("deploy", "stop", "--yes"), self._report)

    def status(self) -> dict[str, Any]:
        """Return what `deploy status --json` says: `state` and the roles.

        Raises UsageError for a wrong inventory.
        """
        answer = run(
            [*self._arguments("deploy", "status"), "--json"], lambda line: None, STATUS_KNOWN
        )
        if not isinstance(answer, dict) or "state" not in answer:
            raise ClusterError(
                f"{self.inventory}: deploy status: expected an object with `state`, found"
                f" {answer!r:.200}"
            )
        return answer

    def train(
        self,
        model: Any = None,
        data: Any = None,
        *,
        chaos: str | None = None,
        resume: bool | str | Path = False,
        **settings: Any,
    ) -> Run:
        """Train to the end, with progress, and return the run.

        `model`: a function of `(input_shape, outputs)` or of nothing that returns a Keras model; a
        Keras model; the path of an app; or the name of a built-in network. `data`: a `Data` or a
        dict of arrays x_train, y_train, x_test, y_test; Keras's pair of pairs; or what `--data`
        takes. `loss`, `metrics`, `augment` (functions) and `task` belong to a model that is a
        function. All other settings are keys of `jobs.train` in the inventory, e.g. `mode="sync"`,
        `epochs=5`, `batch_size=64`, `codec="fp16"`.

        Raises UsageError for what cannot be trained as given (DataError for arrays), Cancelled on
        Ctrl-C, whose `run` is the result so far, else ClusterError: without a running cluster
        (`with` starts one), or when the job fails.
        """
        if chaos is None:
            flags = []
        else:
            flags = ["--chaos", chaos]
        try:
            return Run(self._job("train", model, data, resume, flags, settings))
        except Cancelled as ended:
            if isinstance(ended.answer, dict) and "result_path" in ended.answer:
                ended.run = Run(_folder(ended.answer))
            raise

    def sweep(self, file: str | Path, *, resume: bool | str | Path = False) -> Sweep:
        """Train every run of a sweep's file (docs/sweeps.md) to the end; return the sweep.

        With `resume` the newest unfinished sweep of the file continues, or the one in the folder
        that it names.

        Raises UsageError for a file that cannot be used, Cancelled on Ctrl-C, and ClusterError
        where a run failed: the results of the others are in the folder.
        """
        arguments = [*self._arguments("sweep", str(file)), "--json"]
        arguments += _resumed(resume)
        return Sweep(_folder(run(arguments, self._report)))

    def cross_validate(
        self,
        model: Any = None,
        data: Any = None,
        *,
        folds: int | str = 5,
        seeds: int | Sequence[int] = 1,
        resume: bool | str | Path = False,
        **settings: Any,
    ) -> CrossValidation:
        """Train each fold on the people of the others, with each seed, and judge it.

        The test set is not read.

        `folds`: their number, or "groups" to leave out one group of the data, such as a person, at
        a time. `seeds`: their number, or a list. `model`, `data` and `settings` are those
        of `train`.

        Raises UsageError for what cannot be trained as given (DataError for arrays), Cancelled on
        Ctrl-C, else ClusterError; `resume` continues the newest unfinished one, or that of a
        folder.
        """
        which = seeds if isinstance(seeds, int) else list(seeds)
        flags = set_flags([f"jobs.cv.folds={_text(folds)}", f"jobs.cv.seeds={_text(which)}"])
        return CrossValidation(self._job("cv", model, data, resume, flags, settings))

    def _job(
        self,
        job: str,
        model: Any,
        data: Any,
        resume: bool | str | Path,
        flags: Sequence[str],
        settings: dict[str, Any],
    ) -> Path:
        """Return the folder of a job on the model and data; `flags` are those of this job alone."""
        app_settings = {name: settings.pop(name) for name in FUNCTIONS if name in settings}
        if "optimizer" not in settings:
            settings = settings_of(model) | settings
        app = app_flags(AppParts(model, data, **app_settings))
        arguments = [*self._arguments("job", job), *app, "--json"]
        arguments += set_flags([_override(key, value) for key, value in settings.items()])
        arguments += [*flags, *_resumed(resume)]
        return _folder(run(arguments, self._report))

    def __repr__(self) -> str:
        return f"Cluster({str(self.inventory)!r})"

    def _arguments(self, *command: str) -> list[str]:
        overrides = [f"{key}={_text(value)}" for key, value in self._settings.items()]
        return [*command, "--inventory", str(self.inventory), *set_flags(overrides)]


class LocalCluster(Cluster):
    """A cluster of processes on this machine; its inventory is written and removed for it."""

    def __init__(self, workers: Any, ps: Any, **options: Any) -> None:
        from core.inventory import templates

        for name, number in (("workers", workers), ("ps", ps)):
            if (
                isinstance(number, bool)
                or not isinstance(number, int)
                or not 1 <= number <= MOST_ROLES
            ):
                raise UsageError(
                    f"{name}: expected a whole number from 1 to {MOST_ROLES}, found {number!r}"
                )

        folder = tempfile.TemporaryDirectory(prefix="pscluster-")
        file = Path(folder.name, "local.yaml")
        file.write_text(templates.local_inventory(workers, ps), encoding="utf-8")
        super().__init__(file, **options)
        self._ends.callback(folder.cleanup)
        weakref.finalize(self, rmtree, StateFolder.of(file, "local").path, ignore_errors=True)


def local(
    workers: int = 2,
    ps: int = 1,
    *,
    settings: Mapping[str, Any] | None = None,
    report: Callable[[str], None] = show,
) -> Cluster:
    """Make a cluster of `workers` workers and `ps` parameter servers here, without a file."""
    return LocalCluster(workers, ps, settings=settings, report=report)


OF_FIT = {
    "callbacks": "early_stopping is a setting, and run.history has each epoch",
    "class_weight": "class_weights is the setting",
    "sample_weight": "data has `weights`",
    "validation_data": "validation_subjects is the setting",
    "validation_split": "validation_subjects is the setting",
}
"""Arguments of Keras's `fit` that are none of `train`, with what is there instead."""


def _override(key: str, value: Any) -> str:
    if key in OF_FIT:
        raise UsageError(f"{key}: an argument of Keras's fit, not of train: {OF_FIT[key]}")
    if not key.isidentifier():
        raise UsageError(f"{key}: expected the name of a setting of jobs.train")
    if key == "codec" and isinstance(value, str):
        place = f"{key}.name"
    else:
        place = key
    return f"jobs.train.{place}={_text(value)}"


def _resumed(resume: bool | str | Path) -> list[str]:
    if not resume:
        return []
    if resume is True:
        return ["--resume"]
    return ["--resume", "--run", str(resume)]


def _text(value: Any) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as problem:
        raise UsageError(
            f"{value!r:.100}: expected numbers, texts, lists or dicts of such: {problem}"
        ) from problem


def _folder(answer: Any) -> Path:
    if isinstance(answer, dict):
        path = answer.get("result_path")
    else:
        path = None
    if not isinstance(path, str):
        raise ClusterError(f"expected a result with `result_path`, found {answer!r:.200}")
    return Path(path).parent
