"""The file of a sweep: its keys, read strictly.

Every mistake is named at once, with its line and the nearest key.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Tag,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from cluster.pages.files import Axis, Placement
from core.documents import InventoryError, InventoryProblem, printable, suggestion
from core.documents.section import Section, invalid
from core.documents.yaml_document import KeyPath, parse, read_document
from core.ground import gone
from core.inventory.sources import Sources, words_of_finding

PLACEMENTS: tuple[Placement, ...] = get_args(Placement)
SETTINGS_PREFIX = "jobs.train."
"""The keys that a sweep may set begin with it: a run is a training."""
SEED = "jobs.train.seed"
KINDS = ("grid", "runs", "search")
"""Exactly one of them says which runs there are."""

MOST_RUNS = 2000
LARGEST_SEED = 2**31 - 1
LONGEST_NAME = 63
_TOO_MANY = f"runs, at most {MOST_RUNS} are possible"
_DIVIDE = "divide it into several sweeps"


class SweepError(InventoryError):
    """A file of a sweep that cannot be used. The message lists every problem, one a line."""


def _invalid_at(part: str | int, problem: str, remedy: str) -> PydanticCustomError:
    """The error of one value inside the section or the list that is validated."""
    return PydanticCustomError("invalid", problem, {"remedy": remedy, "at": part})


def _setting_key(key: str) -> str:
    if key == SEED:
        raise invalid("the seeds have a key of their own", "write them below `seeds:`")
    if key.startswith(SETTINGS_PREFIX) and key != SETTINGS_PREFIX:
        return key
    from core.inventory.schema_keys import keys_of
    from core.inventory.training import TrainJob

    usual_keys = [f"{SETTINGS_PREFIX}{usual}" for usual in keys_of(TrainJob)]
    near = suggestion(f"{SETTINGS_PREFIX}{key.removeprefix('train.')}", usual_keys)
    raise invalid(
        f"expected a key below {SETTINGS_PREFIX.rstrip('.')}",
        near or "a run is a training: see --set",
    )


def _filled(values: Any) -> tuple[Any, ...]:
    if isinstance(values, tuple) and values:
        return values
    raise invalid("expected a list of values", "write e.g. [8, 16]")


def _first_repeated(values: Sequence[Any]) -> int | None:
    """The place of the first value that was there before: 1 is neither true nor 1.0."""
    earlier = set[str]()
    for at, value in enumerate(values):
        if repr(value) in earlier:
            return at
        earlier.add(repr(value))
    return None


def _distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    at = _first_repeated(values)
    if at is not None:
        raise _invalid_at(at, "given twice", "remove one of the two")
    return values


def _whole(low: int, high: int) -> BeforeValidator:
    def check(value: Any) -> int:
        if type(value) is int and low <= value <= high:
            return value
        raise invalid(f"expected a whole number from {low} to {high}", "correct it")

    return BeforeValidator(check)


def _name(name: Any) -> str:
    plain = isinstance(name, str) and name.isascii()
    if plain and name.replace("-", "").replace("_", "").isalnum() and len(name) <= LONGEST_NAME:
        return str(name)
    raise invalid("not a name", f"use letters, digits, `-` and `_`, at most {LONGEST_NAME}")


def _plain(choice: Any) -> Any:
    if isinstance(choice, dict | tuple):
        raise invalid("expected a word or a number", "a search draws plain values")
    return choice


def _grid(grid: dict[str, Any]) -> dict[str, Any]:
    if not grid:
        raise invalid("no key", "write e.g. `jobs.train.model.hidden: [8, 16]` below it")
    size = math.prod(map(len, grid.values()))
    if size > MOST_RUNS:
        raise invalid(f"{size} {_TOO_MANY}", _DIVIDE)
    return grid


def _listed(runs: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
    at = _first_repeated(runs)
    if at is not None:
        raise _invalid_at(
            at, "the same settings twice", "remove one of the two; `seeds:` repeats runs"
        )
    return runs


_EmptyIfNull = BeforeValidator(lambda section: {} if section is None else section)
_Key = Annotated[str, AfterValidator(_setting_key)]
_Settings = Annotated[dict[_Key, Any], _EmptyIfNull]
_Values = Annotated[tuple[Any, ...], AfterValidator(_distinct), BeforeValidator(_filled)]


class Range(Section):
    """A number that a search draws, from `low` to `high`."""

    low: float
    high: float
    log: bool = False
    step: float | None = None
    whole: bool = False

    @model_validator(mode="after")
    def _fits(self) -> "Range":
        if self.low >= self.high:
            raise invalid("low must be below high", "correct one of the two")
        if self.log and self.low <= 0:
            raise _invalid_at(
                "low", "a logarithm needs a low above 0", "raise it, or leave out log"
            )
        if self.step is not None and (self.step <= 0 or self.log):
            raise _invalid_at("step", "expected a step above 0, and none with log", "correct it")
        numbers = (self.low, self.high, self.step or 0.0)
        if self.whole and not all(number.is_integer() for number in numbers):
            raise invalid(
                "whole: true needs whole numbers", "write low, high and step without decimals"
            )
        return self

    @property
    def ends(self) -> tuple[float, float]:
        """The lowest and the highest value."""
        if self.whole:
            return int(self.low), int(self.high)
        return self.low, self.high


_Choices = Annotated[tuple[Annotated[Any, AfterValidator(_plain)], ...], BeforeValidator(_filled)]
Dimension = Annotated[
    Annotated[_Choices, Tag("choices")] | Annotated[Range, Tag("range")],
    Discriminator(lambda value: "choices" if isinstance(value, tuple) else "range"),
]
"""What a search draws a key's value from."""


class Search(Section):
    """A search of `trials` runs for the best `metric` of the validation, by Optuna."""

    trials: Annotated[int, _whole(1, MOST_RUNS)]
    space: Annotated[dict[_Key, Dimension], _EmptyIfNull]
    sampler: Literal["tpe", "random"] = "tpe"
    pruner: Literal["none", "median", "asha"] = "none"
    metric: Literal["accuracy", "f1_macro", "loss"] = "accuracy"
    """A figure of the validation; the test set chooses nothing."""

    @property
    def maximizes(self) -> bool:
        """Whether more is better."""
        return self.metric != "loss"


class SweepKeys(Section):
    """The keys of the file."""

    name: Annotated[str | None, BeforeValidator(_name)] = None
    base: _Settings = {}  # noqa: RUF012  # pydantic copies it
    grid: Annotated[dict[_Key, _Values], AfterValidator(_grid), _EmptyIfNull] | None = None
    runs: Annotated[tuple[_Settings, ...], AfterValidator(_listed), BeforeValidator(_filled)] = ()
    search: Search | None = None
    seeds: Annotated[
        tuple[Annotated[int, _whole(0, LARGEST_SEED)], ...],
        AfterValidator(_distinct),
        BeforeValidator(_filled),
    ] = (0,)
    placement: Placement = "node"

    @model_validator(mode="after")
    def _fits(self) -> "SweepKeys":
        if self.search is not None and len(self.seeds) > 1:
            remedy = "write one seed; train what the search found again with `runs:` and several"
            raise _invalid_at("seeds", "a search compares trials of one seed", remedy)
        count = len(self.seeds) * len(self.choices())
        if count > MOST_RUNS:
            raise invalid(f"{count} {_TOO_MANY}", _DIVIDE)
        return self

    def choices(self) -> tuple["RunSettings", ...]:
        """The settings of a grid or a list, in their order: the last key changes first."""
        if self.grid is None:
            return tuple(
                RunSettings(run, {key: ("runs", at, key) for key in run}, ("runs", at))
                for at, run in enumerate(self.runs)
            )
        axes = [
            [(key, value, ("grid", key, at)) for at, value in enumerate(values)]
            for key, values in self.grid.items()
        ]
        return tuple(
            RunSettings(
                {key: value for key, value, _ in cell}, {key: path for key, _, path in cell}
            )
            for cell in product(*axes)
        )


@dataclass(frozen=True)
class RunSettings:
    """The settings of one run without seed and `base`.

    `places` has where its keys are written, `entry` its place in a list of runs.
    """

    settings: Mapping[str, Any]
    places: Mapping[str, KeyPath]
    entry: KeyPath | None = None


@dataclass(frozen=True)
class SweepFile:
    """What the file says. `choices` are empty for a `search`, which draws them."""

    file: str
    name: str
    placement: Placement
    base: Mapping[str, Any]
    choices: tuple[RunSettings, ...]
    search: Search | None
    seeds: tuple[int, ...]
    lines: Mapping[KeyPath, int]

    @property
    def run_count(self) -> int:
        """Return the number of runs; of a search, at most."""
        return len(self.seeds) * (len(self.choices) if self.search is None else self.search.trials)

    def problem(
        self, path: KeyPath, problem: str, remedy: str, value: str | None = None
    ) -> InventoryProblem:
        """A problem with what the file says at the path."""
        line = self.lines.get(path, self.lines.get(path[:1]))
        key = ".".join(map(str, path))
        return InventoryProblem(self.file, key, problem, remedy, line=line, value=value)


def read_sweep_file(path: Path) -> SweepFile:
    """Read the file. Raises SweepError, a UsageError, with every problem."""
    file = printable(str(path))
    try:
        text = read_document(
            path, file, "a sweep", "name the YAML file of a sweep, e.g. sweeps/example.yaml"
        )
    except InventoryError as error:
        raise SweepError(error.problems) from None
    return read_text(text, file, path.stem)


def read_text(text: str, file: str, name: str = "sweep") -> SweepFile:
    """Return the sweep of a text; `name` is the sweep's where the file gives none.

    Raises SweepError.
    """
    document = parse(text, file)
    if not isinstance(document.value, dict):
        expected = InventoryProblem(
            file, "", "expected keys such as `grid:` and `seeds:`", "see docs/sweeps.md", line=1
        )
        raise SweepError(document.problems or [expected])
    sources = Sources(file, document.value, document.lines)
    problems = document.problems
    kinds = [kind for kind in KINDS if kind in document.value]
    if len(kinds) != 1:
        what = f"expected one of {', '.join(KINDS)}, got {' and '.join(kinds) or 'none'}"
        problems.append(sources.problem((), what, "write one of them"))
    try:
        empty: dict[str, Any] = {kind: {} for kind in kinds if document.value[kind] is None}
        keys = SweepKeys.model_validate({**document.value, **empty})
    except ValidationError as error:
        findings = error.errors(include_url=False, include_input=False)
        raise SweepError(
            [*problems, *(_explained(finding, sources) for finding in findings)]
        ) from None
    if problems:
        raise SweepError(problems)
    return SweepFile(
        file,
        keys.name or _safe_name(name),
        keys.placement,
        keys.base,
        keys.choices(),
        keys.search,
        keys.seeds,
        document.lines,
    )


def _safe_name(usual: str) -> str:
    characters = (
        character if character.isascii() and (character.isalnum() or character in "-_") else "-"
        for character in usual
    )
    return "".join(characters)[:LONGEST_NAME].strip("-_") or "sweep"


def _explained(finding: ErrorDetails, sources: Sources) -> InventoryProblem:
    """Say what pydantic found in our own words, at its place in the file."""
    location = finding["loc"]
    if location[:2] == ("search", "space"):
        location = (*location[:3], *location[4:])  # without the kind of dimension
    if location[-1:] == ("[key]",):
        location = location[:-1]
    context = finding.get("ctx", {})
    if "at" in context:
        location = (*location, context["at"])
    if location:
        key = str(location[-1])
    else:
        key = ""
    match finding["type"]:
        case "extra_forbidden":
            sections: dict[KeyPath, type[Section]] = {(): SweepKeys, ("search",): Search}
            section = sections.get(location[:-1], Range)
            keys = list(section.model_fields)
            usual = "write a list of choices, or low and high"
            if section is not Range:
                usual = f"the keys here are {', '.join(keys)}"
            remedy = gone.KEYS.get(key) or suggestion(key, keys) or usual
            return replace(sources.problem(location, "unknown key", remedy), value=None)
        case "missing":
            return sources.problem(location[:-1], f"{key} is missing", f"add `{key}:`")
    problem, remedy = words_of_finding(finding, location, sources.at(location))
    return sources.problem(location, problem, remedy)


def axes_of(settings: Sequence[Mapping[str, Any]]) -> tuple[Axis, ...]:
    """The keys of some runs and the values each takes, in the order in which they come."""
    axes: dict[str, dict[str, Any]] = {}
    for run_settings in settings:
        for key, value in run_settings.items():
            axes.setdefault(key, {}).setdefault(repr(value), value)
    return tuple(Axis(key, tuple(values.values())) for key, values in axes.items())
