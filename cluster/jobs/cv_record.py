"""`cv.json` of a cross-validation: the folds that are done, as they came, judged and summed up.

A fold is judged over the windows that it holds out.
"""

import json
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, TypeAdapter

from cluster.jobs.checkpointing import refuse_other_settings
from cluster.jobs.evaluation import Evaluator
from cluster.jobs.fit import refuse_without_loss
from core.data.split import Fold
from core.ground.errors import UsageError, reason_of
from core.ground.files import atomic_write, parsed_json, read_object
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
            content = read_object(path, MOST_BYTES, SCHEMA)
            then = dict(content["key"])
            scores = list(_SCORES.validate_python(content["folds"]))
        except (OSError, ValueError, KeyError, TypeError) as problem:
            raise UsageError(
                f"{path}: expected the folds that this run has done, got {reason_of(problem)}:"
                " start a new one without --resume"
            ) from None
        refuse_other_settings(path, then, key)
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
        by_fold = self._means("fold")
        trained = Counter(score.seed for score in self.scores)
        folds = self.planned // len(self.key["seeds"])
        by_seed = {
            seed: mean for seed, mean in self._means("seed").items() if trained[seed] == folds
        }
        return {
            "figure": self.headline,
            "mean": statistics.fmean(by_fold.values()) if by_fold else None,
            "spread_over_seeds": _spread(by_seed),
            "spread_over_folds": _spread(by_fold),
            "seeds": {str(seed): value for seed, value in by_seed.items()},
            "folds": {str(fold): value for fold, value in by_fold.items()},
            "groups": {str(group): value for group, value in self._by_group().items()},
        }

    def _means(self, part: str) -> dict[int, float]:
        """Return the mean of the headline of each seed, or of each fold."""
        figures: dict[int, list[float]] = {}
        for score in self.scores:
            figures.setdefault(getattr(score, part), []).append(score.figures[self.headline])
        return {number: statistics.fmean(figures[number]) for number in sorted(figures)}

    def _by_group(self) -> dict[int, float]:
        right = Counter[int]()
        windows = Counter[int]()
        for group in (group for score in self.scores for group in score.groups):
            if group.right is not None:
                right[group.group] += group.right
                windows[group.group] += group.windows
        return {group: right[group] / windows[group] for group in sorted(right) if windows[group]}

    def table(self) -> list[str]:
        """Return lines for a person: a row a fold, a column a seed, means, groups' accuracy."""
        summary = self.summary()
        name = self.headline
        seeds = sorted({score.seed for score in self.scores})
        figures = {(score.fold, score.seed): score.figures[name] for score in self.scores}
        held_out = {score.fold: names_of(score.groups) for score in self.scores}
        lines = [_row(name, [f"seed {seed}" for seed in seeds], "mean", "held out")]
        for fold in sorted(held_out):
            values = [_figure_text(figures.get((fold, seed))) for seed in seeds]
            mean = _figure_text(summary["folds"][str(fold)])
            lines.append(_row(f"fold {fold + 1}", values, mean, held_out[fold]))
        spreads = ", ".join(
            f"+- {summary[f'spread_over_{spread}']:.4f} over {spread}"
            for spread in ("folds", "seeds")
            if summary[f"spread_over_{spread}"] is not None
        )
        means = [_figure_text(summary["seeds"].get(str(seed))) for seed in seeds]
        lines.append(_row("mean", means, _figure_text(summary["mean"]), spreads))
        if groups := summary["groups"]:
            worst = sorted(groups, key=lambda group: (groups[group], int(group)))
            lines.append(
                "by group: " + "  ".join(f"{group} {groups[group]:.3f}" for group in worst)
            )
        return lines


def _spread(means: Mapping[int, float]) -> float | None:
    if len(means) > 1:
        return statistics.stdev(means.values())
    return None


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
