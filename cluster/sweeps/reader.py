"""Takes values out of a sweep's parsed file, and names each mistake with line and nearest key.

Its section `search:` says how Optuna draws each trial, and when it ends one.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.documents import InventoryProblem, suggestion, yaml_words
from core.documents.yaml_document import Document, KeyPath
from core.ground import gone

SETTINGS_PREFIX = "jobs.train."
"""The keys that a sweep may set begin with it: a run is a training."""
SEED = "jobs.train.seed"


class DocumentReader:
    """Takes values out of a parsed document and collects the problems on the way."""

    def __init__(self, document: Document) -> None:
        self.file = document.file
        self.lines = document.lines
        self.top: dict[str, Any] = document.value
        self.problems = list(document.problems)

    def add(self, path: KeyPath, problem: str, remedy: str, value: object = None) -> None:
        """A problem with the value at `path`, or with the nearest one around it."""
        near = path
        while near not in self.lines and near:
            near = near[:-1]
        key = ".".join(str(part) for part in path)
        if value is None:
            value_text = None
        else:
            value_text = yaml_words(value)
        self.problems.append(
            InventoryProblem(
                self.file, key, problem, remedy, line=self.lines.get(near), value=value_text
            )
        )

    def refuse_unknown(
        self, section: Mapping[str, Any], keys: tuple[str, ...], path: KeyPath = ()
    ) -> None:
        """Name every key that is none of `keys`, with the nearest."""
        for key in section:
            if key not in keys:
                self.add(
                    (*path, key),
                    "unknown key",
                    gone.KEYS.get(key)
                    or suggestion(key, keys)
                    or f"the keys here are {', '.join(keys)}",
                )

    def mapping(self, path: KeyPath, value: Any) -> dict[str, Any]:
        """The value if it is a mapping, else an empty one and a problem."""
        if isinstance(value, dict):
            return value
        if value is not None:
            self.add(
                path, "expected a section with keys", "write its keys below it, indented", value
            )
        return {}

    def items(self, path: KeyPath, value: Any) -> tuple[Any, ...]:
        """The value if it is a list with something in it, else an empty one and a problem."""
        if isinstance(value, tuple) and value:
            return value
        self.add(path, "expected a list of values", "write e.g. [8, 16]", value)
        return ()

    def whole(self, path: KeyPath, value: Any, low: int, high: int) -> int:
        """A whole number of these bounds, else `low` and a problem."""
        if type(value) is int and low <= value <= high:
            return value
        self.add(path, f"expected a whole number from {low} to {high}", "correct it", value)
        return low

    def word(self, path: KeyPath, value: Any, choices: tuple[str, ...]) -> str:
        """Return one of the choices, else the first and a problem."""
        if value in choices:
            return str(value)
        if isinstance(value, str):
            near = suggestion(value, choices)
        else:
            near = None
        self.add(path, f"expected {' or '.join(choices)}", near or "write one of them", value)
        return choices[0]

    def setting(self, path: KeyPath, key: str) -> None:
        """Refuse a key that no run may set."""
        if not key.startswith(SETTINGS_PREFIX) or key == SETTINGS_PREFIX:
            remedy = suggestion(f"{SETTINGS_PREFIX}{key.removeprefix('train.')}", _usual_keys())
            self.add(
                path,
                f"expected a key below {SETTINGS_PREFIX.rstrip('.')}",
                remedy or "a run is a training: see --set",
            )
        elif key == SEED:
            self.add(path, "the seeds have a key of their own", "write them below `seeds:`")


def _usual_keys() -> list[str]:
    from core.inventory.schema_keys import keys_of
    from core.inventory.training import TrainJob

    return [f"{SETTINGS_PREFIX}{key}" for key in keys_of(TrainJob)]


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
