"""`cv.json` of a cross-validation: the folds that are done, as they came, judged and summed up.

A fold is judged over the windows that it holds out.
"""

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, TypeAdapter, ValidationError

from cluster.jobs.evaluation import Evaluator
from cluster.jobs.updates import refuse_without_loss
from core.data.split import Fold
from core.ground.errors import UsageError, reason_of
from core.ground.files import atomic_write, parsed_json
from core.inventory import Inventory
from core.status.parts import Figures
from worker_node.recordings import Standardization

NAME = "cv.json"
SCHEMA = 1
MOST_BYTES = 256 << 20
MOST_SHOWN = 6
Count = Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class GroupScore:
    """The held-out windows of one group, and how many were answered right.

    Null for tasks without that.
    """

    group: int
    windows: Count
    right: Count | None


@dataclass(frozen=True)
class FoldScore:
    """One training of one fold.

    `figures` are those over its held-out windows, by name, null where the task has none.

    `parameters_sha256` is of the parameters at the last epoch.
    """

    seed: Count
    fold: Count
    groups: tuple[GroupScore, ...]
    train_windows: Count
    windows: Count
    figures: dict[str, Any]
    confusion: tuple[tuple[Count, ...], ...]
    parameters_sha256: str
    seconds: float


_SCORES = TypeAdapter(tuple[FoldScore, ...])


NOT_OF_A_FOLD = ("seed", "validation_subjects", "refit", "early_stopping", "checkpoint")
"""Keys of `jobs.train` that mean nothing here: the folds and the seeds of `jobs.cv` take their
place."""


def key_of(
    dataset_sha256: str, groups: int, inventory: Inventory, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what two coordinators of one run agree on; `settings` are those of `jobs.train`."""
    train = {
        f"train.{name}": value for name, value in settings.items() if name not in NOT_OF_A_FOLD
    }
    return {
        "dataset_sha256": dataset_sha256,
        "groups": groups,
        **inventory.jobs.cv.model_dump(mode="json"),
        **train,
    }


@dataclass
class CvRecord:
    """What a cross-validation has found so far.

    `key` says what it is of: a resumed run continues no other.
    """

    path: Path
    key: dict[str, Any]
    planned: int
    scores: list[FoldScore]

    @classmethod
    def load(cls, path: Path, key: dict[str, Any], planned: int) -> "CvRecord":
        """The record in the file, or an empty one.

        Raises UsageError if the file is of other settings or damaged.
        """
        key = parsed_json(json.dumps(key))
        if not path.exists():
            return cls(path, key, planned, [])
        try:
            with path.open("rb") as stream:
                content: Any = parsed_json(stream.read(MOST_BYTES))
            if content["schema"] != SCHEMA:
                raise ValueError(f"schema {content['schema']}, this version reads {SCHEMA}")
            then = dict(content["key"])
            scores = list(_SCORES.validate_python(content["folds"]))
        except (
            OSError,
            ValueError,
            KeyError,
            TypeError,
            ValidationError,
            RecursionError,
        ) as problem:
            raise UsageError(
                f"{path}: expected the folds that this run has done, got {reason_of(problem)}:"
                " start a new one without --resume"
            ) from None
        differing = sorted(name for name in {*key, *then} if key.get(name) != then.get(name))
        if differing:
            changes = "; ".join(
                f"{name} was {then.get(name)!r} and is {key.get(name)!r}" for name in differing
            )
            raise UsageError(
                f"{path}: a resumed run keeps the settings it began with, but {changes}: give it"
                " those"
            )
        return cls(path, key, planned, scores)

    def has(self, seed: int, fold: int) -> bool:
        """Whether this fold is done with this seed."""
        return any((score.seed, score.fold) == (seed, fold) for score in self.scores)

    def add(self, score: FoldScore) -> None:
        """Keep one more, on disk too: all of them or what was there before. Raises ClusterError."""
        self.scores.append(score)
        folds = [asdict(fold_score) for fold_score in self.scores]
        content = {
            "schema": SCHEMA,
            "key": self.key,
            "planned": self.planned,
            "summary": self.summary(),
        }
        atomic_write(self.path, json.dumps({**content, "folds": folds}, indent=2).encode() + b"\n")

    @property
    def complete(self) -> bool:
        """Whether every fold was trained with every seed."""
        return len(self.scores) == self.planned

    @property
    def headline(self) -> str:
        """The name of the figure that counts: accuracy, or the loss of a task without one."""
        if all(score.figures.get("accuracy") is not None for score in self.scores):
            return "accuracy"
        return "loss"

    def summary(self) -> dict[str, Any]:
        """Return means and spreads: `mean` is over the folds, each the mean over its seeds.

        All folds count the same. A seed has a value once it has trained every fold: an easy fold
        alone would flatter it. `spread_over_folds` is the standard deviation of the folds' means,
        `spread_over_seeds` that of the seeds' values, null where there are fewer than two. A
        group's accuracy is over its windows with all seeds.
        """
        name = self.headline
        by_fold = {
            fold: self._mean(name, "fold", fold)
            for fold in sorted({score.fold for score in self.scores})
        }
        trained = {
            seed: {score.fold for score in self.scores if score.seed == seed}
            for seed in self._seeds
        }
        folds = self.planned // len(self.key["seeds"])
        whole = [seed for seed in self._seeds if len(trained[seed]) == folds]
        by_seed = {seed: self._mean(name, "seed", seed) for seed in whole}
        values = list(by_seed.values())
        return {
            "figure": name,
            "mean": statistics.fmean(by_fold.values()) if by_fold else None,
            "spread_over_seeds": statistics.stdev(values) if len(values) > 1 else None,
            "spread_over_folds": statistics.stdev(by_fold.values()) if len(by_fold) > 1 else None,
            "seeds": {str(seed): value for seed, value in by_seed.items()},
            "folds": {str(fold): value for fold, value in by_fold.items()},
            "groups": {str(group): value for group, value in self._by_group().items()},
        }

    @property
    def _seeds(self) -> list[int]:
        return sorted({score.seed for score in self.scores})

    def _mean(self, name: str, part: str, value: int) -> float:
        figures = [score.figures[name] for score in self.scores if getattr(score, part) == value]
        return statistics.fmean(figures)

    def _by_group(self) -> dict[int, float]:
        right = dict[int, int]()
        windows = dict[int, int]()
        for tested_group in (
            group for score in self.scores for group in score.groups if group.right is not None
        ):
            right[tested_group.group] = right.get(tested_group.group, 0) + (tested_group.right or 0)
            windows[tested_group.group] = windows.get(tested_group.group, 0) + tested_group.windows
        return {group: right[group] / windows[group] for group in sorted(right) if windows[group]}

    def table(self) -> list[str]:
        """Return lines for a person: a row a fold, a column a seed, means, groups' accuracy."""
        seeds = self._seeds
        headlines = {
            (score.fold, score.seed): score.figures[self.headline] for score in self.scores
        }
        score_of_fold = {score.fold: score for score in self.scores}
        summary = self.summary()
        lines = [_row(f"{self.headline}", [f"seed {seed}" for seed in seeds], "mean", "held out")]
        for fold in sorted(score_of_fold):
            values = [_figure_text(headlines.get((fold, seed))) for seed in seeds]
            held_out = score_of_fold[fold].groups
            lines.append(
                _row(
                    f"fold {fold + 1}",
                    values,
                    _figure_text(summary["folds"][str(fold)]),
                    names_of(held_out),
                )
            )
        spread = summary["spread_over_folds"]
        if spread is None:
            spreads = ""
        else:
            spreads = f"+- {spread:.4f} over folds"
        if summary["spread_over_seeds"] is not None:
            spreads += f", +- {summary['spread_over_seeds']:.4f} over seeds"
        means = [_figure_text(summary["seeds"].get(str(seed))) for seed in seeds]
        lines.append(_row("mean", means, _figure_text(summary["mean"]), spreads))
        if groups := summary["groups"]:
            worst = sorted(groups, key=lambda group: (groups[group], int(group)))
            lines.append(
                "by group: " + "  ".join(f"{group} {groups[group]:.3f}" for group in worst)
            )
        return lines


def names_of(groups: Sequence[GroupScore]) -> str:
    """`groups 3, 7 and 2 more`; empty without groups."""
    if not groups:
        return ""
    names = ", ".join(str(score.group) for score in groups[:MOST_SHOWN])
    if len(groups) > MOST_SHOWN:
        names += f" and {len(groups) - MOST_SHOWN} more"
    return f"group{'s' * (len(groups) > 1)} {names}"


def _row(first: str, values: Sequence[str], last: str, remark: str) -> str:
    return (
        f"{first:<9}"
        + "".join(f"{value:>8}" for value in (*values, last))
        + f"   {remark}".rstrip()
    )


def _figure_text(value: float | None) -> str:
    if value is None:
        return "-"
    if abs(value) < 100:
        return f"{value:.4f}"
    return f"{value:.4g}"


def score_of_fold(
    evaluator: Evaluator,
    fold: Fold,
    groups: NDArray[np.integer],
    standardization: Standardization,
    stop: Callable[[], bool],
) -> FoldScore | None:
    """Return the figures over the held-out windows, of each group by itself too.

    Raises DivergedError if their loss is not finite.

    `groups` has the group of each row. None once `stop()` is true. Seed, digest and seconds are the
    caller's.
    """
    whole = evaluator(fold.held_out, standardization, stop=stop, groups=groups)
    if stop() or whole.figures is None:
        return None
    refuse_without_loss(whole.figures)
    return FoldScore(
        seed=0,
        fold=fold.number,
        groups=tuple(_group_score(group, *whole.of_groups[group]) for group in fold.groups),
        train_windows=len(fold.train),
        windows=whole.examples,
        figures=whole.figures.describe(),
        confusion=tuple(tuple(map(int, row)) for row in whole.confusion),
        parameters_sha256="",
        seconds=0.0,
    )


def _group_score(group: int, examples: int, figures: Figures | None) -> GroupScore:
    if figures is None or figures.accuracy is None:
        return GroupScore(group, examples, None)
    return GroupScore(group, examples, round(figures.accuracy * examples))
