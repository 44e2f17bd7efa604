"""The section `search:` of a sweep's file: how Optuna draws each trial, and when it ends one."""

import math
from dataclasses import dataclass
from typing import Any

from cluster.sweeps.reader import DocumentReader
from core.documents import suggestion

KEYS = ("trials", "sampler", "pruner", "metric", "space")
SAMPLERS = ("tpe", "random")
PRUNERS = ("none", "median", "asha")
METRICS = ("accuracy", "f1_macro", "loss")
"""Figures of the validation; the test set chooses nothing."""
SPACE_KEYS = ("choices", "low", "high", "log", "step", "whole")
MOST_TRIALS = 2000


@dataclass(frozen=True)
class Dimension:
    """One key of the space: one of the `choices`, or a number from `low` to `high`."""

    key: str
    choices: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    step: float | None = None
    whole: bool = False


@dataclass(frozen=True)
class Search:
    """A search of `trials` runs for the best `metric` of the validation."""

    trials: int
    sampler: str
    pruner: str
    metric: str
    space: tuple[Dimension, ...]

    @property
    def maximizes(self) -> bool:
        """Whether more is better."""
        return self.metric != "loss"


def search_of(reader: DocumentReader, raw_section: Any) -> Search:
    """The section as it is written; the reader gets its problems."""
    section = reader.mapping(("search",), raw_section)
    reader.refuse_unknown(section, KEYS, ("search",))
    for key in ("trials", "space"):
        if key not in section:
            reader.add(("search",), f"{key} is missing", f"add `{key}:`")
    trials = reader.whole(("search", "trials"), section.get("trials", 1), 1, MOST_TRIALS)
    space = reader.mapping(("search", "space"), section.get("space"))
    dimensions = tuple(_dimension(reader, key, value) for key, value in space.items())
    return Search(
        trials,
        reader.word(("search", "sampler"), section.get("sampler", SAMPLERS[0]), SAMPLERS),
        reader.word(("search", "pruner"), section.get("pruner", PRUNERS[0]), PRUNERS),
        reader.word(("search", "metric"), section.get("metric", METRICS[0]), METRICS),
        dimensions,
    )


def _dimension(reader: DocumentReader, key: str, value: Any) -> Dimension:
    path = ("search", "space", key)
    reader.setting(path, key)
    if isinstance(value, tuple):
        choices = reader.items(path, value)
        for at, choice in enumerate(choices):
            if isinstance(choice, dict | tuple):
                reader.add(
                    (*path, at),
                    "expected a word or a number",
                    "a search draws plain values",
                    choice,
                )
        return Dimension(key, choices)
    section = reader.mapping(path, value)
    number_keys = tuple(name for name in SPACE_KEYS if name != "choices")
    for name in section:
        if name not in number_keys:
            near = suggestion(name, number_keys) or "write a list of choices, or low and high"
            reader.add((*path, name), "unknown key", near)
    low, high = (_number(reader, (*path, name), section.get(name)) for name in ("low", "high"))
    log, whole = (section.get(name, False) for name in ("log", "whole"))
    for name, flag in (("log", log), ("whole", whole)):
        if type(flag) is not bool:
            reader.add(
                (*path, name), "expected true or false", "write true or false, without quotes", flag
            )
    if low >= high:
        reader.add(path, "low must be below high", "correct one of the two")
    if log is True and low <= 0:
        reader.add(
            (*path, "low"), "a logarithm needs a low above 0", "raise it, or leave out log", low
        )
    if section.get("step") is None:
        step = None
    else:
        step = _number(reader, (*path, "step"), section["step"])
    if step is not None and (step <= 0 or log is True):
        reader.add(
            (*path, "step"), "expected a step above 0, and none with log", "correct it", step
        )
    if whole is True and any(
        number is not None and number != int(number) for number in (low, high, step)
    ):
        reader.add(
            path, "whole: true needs whole numbers", "write low, high and step without decimals"
        )
    return Dimension(key, (), low, high, log is True, step, whole is True)


def _number(reader: DocumentReader, path: tuple[str | int, ...], value: Any) -> float:
    if type(value) in (int, float) and math.isfinite(value):
        return float(value)
    reader.add(path, "expected a number", "write e.g. 0.002 or 2e-3, without quotes", value)
    return 0.0
