"""What a training, a cross-validation or a sweep left, read from its folder."""

from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from cluster.pages.files import read_sweep
from cluster.sweeps.progress import text_table
from core.ground.errors import ClusterError, UsageError, reason_of
from core.ground.files import parsed_json, read_json

EXPORTED = Path("model", "model.keras")
"""The Keras model of an app's training, in the run's folder."""
REPORT = "report.html"


class _Folder:
    """What a command left in a folder, which one file makes known."""

    file: ClassVar[str]
    what: ClassVar[str]

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if not (self.folder / self.file).is_file():
            raise UsageError(
                f"{self.folder}: expected the folder of a {self.what}, found no {self.file} in it"
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.folder)!r})"


class Run(_Folder):
    """A training by its folder, e.g. `Run("runs/20260131T120000Z-train")`.

    Raises UsageError for another folder.
    """

    file = "result.json"
    what = "run"

    @cached_property
    def result(self) -> dict[str, Any]:
        """`result.json`, whose keys docs/runs.md explains.

        Raises ClusterError for a damaged file.
        """
        file = self.folder / self.file
        try:
            result = read_json(file)
        except ValueError as problem:
            raise ClusterError(f"{file}: expected JSON: {problem}") from problem
        if not isinstance(result, dict):
            raise ClusterError(f"{file}: expected an object, found {type(result).__name__}")
        return result

    @cached_property
    def history(self) -> list[dict[str, Any]]:
        """The run's finished epochs in order, the lines `epoch` of `history.jsonl`."""
        try:
            lines = (self.folder / "history.jsonl").read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        events = [event for event in map(_event, lines) if event.get("event") == "epoch"]
        # A resumed run repeats the epochs after its checkpoint; the last report counts.
        return list({event.get("epoch"): event for event in events}.values())

    @cached_property
    def model(self) -> Any:
        """The trained model as Keras opens it.

        Raises UsageError for a built-in network, which has no Keras model, and for a file that
        Keras does not open.
        """
        file = self.folder / EXPORTED
        if not file.is_file():
            raise UsageError(
                f"{file}: no such file: a built-in network leaves model/weights.safetensors alone;"
                " give `train` a Keras model to get one"
            )
        import keras

        import pscluster.keras  # noqa: F401  its layers may be in the file

        try:
            return keras.models.load_model(file, compile=False)
        except Exception as problem:  # whatever Keras, or a layer, raises
            raise UsageError(
                f"{file}: Keras does not open it: {reason_of(problem):.200}: import the module that"
                " registers its own classes first; a Lambda opens with"
                " keras.models.load_model(file, compile=False, safe_mode=False), which runs code"
                " that is in the file"
            ) from problem

    def report(self) -> "Report":
        """Return `report.html`, which a notebook shows below the cell.

        Raises ClusterError where the job wrote none.
        """
        file = self.folder / REPORT
        if not file.is_file():
            raise ClusterError(
                f"{file}: no such file: `pscluster report --run {self.folder}` writes it"
            )
        return Report(file)


class Report:
    """A page in a file, in a frame of its own where a notebook shows it."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def _repr_html_(self) -> str:
        from html import escape

        # The frame has an origin of its own, so the page's scripts cannot reach the notebook.
        page = escape(self.file.read_text(encoding="utf-8"), quote=True)
        return (
            f'<iframe srcdoc="{page}" sandbox="allow-scripts" width="100%" height="800"'
            ' style="border:0"></iframe>'
        )

    def __repr__(self) -> str:
        return f"Report({str(self.file)!r})"


def _event(line: str) -> dict[str, Any]:
    try:
        event = parsed_json(line)
    except ValueError:  # the last line of a coordinator that was killed
        return {}
    if isinstance(event, dict):
        return event
    return {}


class CrossValidation(_Folder):
    """A cross-validation by its folder, e.g. `CrossValidation("runs/20260131T120000Z-cv")`.

    Raises UsageError for another folder.
    """

    file = "cv.json"
    what = "cross-validation"

    @cached_property
    def record(self) -> dict[str, Any]:
        """`cv.json`, whose keys docs/runs.md explains. Raises ClusterError for a damaged file."""
        file = self.folder / self.file
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


def _number(value: Any) -> float | None:
    if value is None:
        return None
    return float(value)


class Sweep(_Folder):
    """A sweep by its folder, e.g. `Sweep("runs/20260131T120000Z-sweep")`.

    Raises UsageError for another folder.
    """

    file = "sweep.json"
    what = "sweep"

    def __init__(self, folder: str | Path) -> None:
        super().__init__(folder)
        self._record = read_sweep(self.folder)

    @property
    def runs(self) -> list[dict[str, Any]]:
        """The runs of `sweep.json`, whose keys docs/runs.md explains."""
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
