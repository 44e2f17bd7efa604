"""Which runs a sweep makes, in which order, and the overrides that make an inventory one of them.

Pure.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cluster.pages.files import Placement
from cluster.sweeps.reader import SEED, SETTINGS
from cluster.sweeps.sweep_file import RunSettings, SweepError, SweepFile
from core.documents.problem import InventoryError, InventoryProblem, shown
from core.documents.yaml_document import KeyPath

if TYPE_CHECKING:
    from core.inventory import Inventory

MODE = "jobs.train.mode"
SINGLE = "single"
"""The mode of a run that one node trains by itself."""
ENOUGH_PROBLEMS = 20


@dataclass(frozen=True)
class PlannedRun:
    """One run: `settings` are what it has of its own, by key."""

    id: str
    settings: Mapping[str, Any]
    seed: int


def override(key: str, value: Any) -> str:
    """The setting as `--set` takes it: JSON is YAML."""
    return f"{key}={json.dumps(value)}"


def planned(sweep: SweepFile) -> tuple[PlannedRun, ...]:
    """The runs of a grid or a list: every seed of the first settings, then of the next.

    None of a search.
    """
    pairs = [(choice.settings, seed) for choice in sweep.choices for seed in sweep.seeds]
    return tuple(
        PlannedRun(run_id(at), settings, seed) for at, (settings, seed) in enumerate(pairs, 1)
    )


def run_id(number: int) -> str:
    """`0001` for the first run."""
    return f"{number:04d}"


def base_overrides(sweep: SweepFile, set_arguments: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the settings of every run: `base` of the file, then what --set gives, which wins."""
    return (*(override(key, value) for key, value in sweep.base.items()), *set_arguments)


def overrides_of(
    base: Sequence[str], placement: Placement, settings: Mapping[str, Any], seed: int
) -> tuple[str, ...]:
    """Return all overrides of one run. `base` is that of `base_overrides`."""
    if placement == "node":
        mode = [override(MODE, SINGLE)]
    else:
        mode = []
    return (
        *base,
        *mode,
        *(override(key, value) for key, value in settings.items()),
        override(SEED, seed),
    )


def fingerprint(sweep: SweepFile) -> str:
    """Return what says that a file is still that of a resumed sweep: its runs, however written."""
    if sweep.search is None:
        search = None
    else:
        search = repr(sweep.search)
    content = [
        sweep.placement,
        list(sweep.seeds),
        sorted(sweep.base.items(), key=lambda item: item[0]),
        [sorted(choice.settings.items(), key=lambda item: item[0]) for choice in sweep.choices],
        search,
    ]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def refuse_unusable(
    sweep: SweepFile, set_arguments: Sequence[str], load: Callable[[Sequence[str]], "Inventory"]
) -> None:
    """Raise SweepError for twins and for settings that the inventory's schema refuses.

    Each is named where the file says it. `set_arguments` are the overrides of --set, `load` makes
    an inventory with overrides or raises InventoryError.
    """
    problems = _clashes(sweep, set_arguments)
    if not problems:
        base = base_overrides(sweep, set_arguments)
        trainings = dict[str, RunSettings]()
        for choice in sweep.choices or corners(sweep):
            try:
                inventory = load(
                    overrides_of(base, sweep.placement, choice.settings, sweep.seeds[0])
                )
            except InventoryError as error:
                choice_problems = [_located(sweep, choice, problem) for problem in error.problems]
            else:
                choice_problems = _shared_devices(sweep, inventory)
                twin = trainings.setdefault(repr(inventory.jobs.train), choice)
                choice_problems += (
                    []
                    if twin is choice or sweep.search is not None
                    else [_twins(sweep, choice, twin)]
                )
            problems += [problem for problem in choice_problems if problem not in problems]
            if len(problems) >= ENOUGH_PROBLEMS:
                break
    if problems:
        raise SweepError(problems)


def _shared_devices(sweep: SweepFile, inventory: "Inventory") -> list[InventoryProblem]:
    """Return a problem where several workers of one machine would share a device.

    Each worker trains by itself, on the first of its machine's devices.
    """
    kind = inventory.jobs.train.device.kind
    crowded = [
        task for task in inventory.of_role("worker") if len(inventory.workers_beside(task)) > 1
    ]
    if sweep.placement != "node" or kind == "cpu" or not crowded:
        return []
    return [
        InventoryProblem(
            sweep.file,
            "placement",
            f"{crowded[0].name} and the other workers of its machine would share one {kind}",
            "keep one worker on that machine, or write placement: cluster",
        )
    ]


def _twins(sweep: SweepFile, choice: RunSettings, twin: RunSettings) -> InventoryProblem:
    """Return the problem of settings that the inventory reads as the same, such as 1 and 1.0."""
    number, first = (
        next(at for at, candidate in enumerate(sweep.choices) if candidate is this)
        for this in (choice, twin)
    )
    other = [
        key for key in choice.settings if repr(choice.settings[key]) != repr(twin.settings.get(key))
    ]
    if "runs" in {path[0] for path in choice.places.values()} or not other:
        place: KeyPath = ("runs", number)
        twin_name = f"runs.{first}"
    else:
        place = choice.places[other[0]]
        twin_name = ".".join(map(str, twin.places[other[0]]))
    return InventoryProblem(
        sweep.file,
        ".".join(map(str, place)),
        f"trains the same as {twin_name}",
        "remove one of the two; `seeds:` repeats runs",
        line=sweep.lines.get(place, sweep.lines.get(place[:1])),
    )


def _clashes(sweep: SweepFile, set_arguments: Sequence[str]) -> list[InventoryProblem]:
    """Keys that the placement or --set decide."""
    problems = []
    keys = {key for choice in sweep.choices or corners(sweep) for key in choice.settings}
    for argument in set_arguments:
        key = argument.partition("=")[0].strip()
        if key in keys or key == SEED:
            remedy = "leave out --set, or change the file"
            problems.append(
                InventoryProblem(sweep.file, key, "the sweep sets it", remedy, override=argument)
            )
    if sweep.placement == "node":
        if sweep.base.get(MODE, SINGLE) != SINGLE:
            fixed = [("base", MODE)]
        else:
            fixed = []
        places = {choice.places[MODE] for choice in sweep.choices if MODE in choice.settings}
        for path in (*fixed, *sorted(places, key=str)):
            problems.append(
                InventoryProblem(
                    sweep.file,
                    ".".join(map(str, path)),
                    "each node trains by itself, in mode single",
                    "leave it out, or write `placement: cluster`",
                    line=sweep.lines.get(path),
                )
            )
    return problems


def corners(sweep: SweepFile) -> tuple[RunSettings, ...]:
    """Return settings of a search with the first and the last value of each dimension."""
    if sweep.search is None:
        return ()
    ends = []
    for at, end in ((0, "low"), (-1, "high")):
        settings: dict[str, Any] = {}
        for dimension in sweep.search.space:
            if dimension.choices:
                settings[dimension.key] = dimension.choices[at]
            else:
                bound = getattr(dimension, end)
                settings[dimension.key] = int(bound) if dimension.whole else bound
        ends.append(RunSettings(settings, {key: ("search", "space", key) for key in settings}))
    return tuple(ends)


def _located(sweep: SweepFile, choice: RunSettings, problem: InventoryProblem) -> InventoryProblem:
    """The problem where the sweep's file says what is wrong, if the file says it."""
    if problem.override is None:
        return problem
    key = problem.override.partition("=")[0]
    for where, path in (
        (choice.settings, sweep.place_of(choice, key)),
        (sweep.base, ("base", key)),
    ):
        if key in where and problem.override == override(key, where[key]):
            value = problem.value
            if value is None and not isinstance(where[key], dict | tuple):
                value = shown(where[key])
            inner = problem.key.removeprefix(key).lstrip(".")
            return replace(
                problem,
                file=sweep.file,
                key=".".join(map(str, (*path, inner) if inner else path)),
                line=sweep.lines.get(path),
                value=value,
                override=None,
            )
    return problem


def is_setting(argument: str) -> bool:
    """Return whether an override concerns the training, which a sweep keeps.

    The others concern the cluster.
    """
    return argument.partition("=")[0].strip().startswith(SETTINGS)
