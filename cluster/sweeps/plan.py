"""Which runs a sweep makes, which goes to which node next, and what the end of its process means.

Overrides make an inventory one of them. Pure: no clock, no process, no file.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cluster.pages.files import OVER, Placement, RunRecord, SweepRecord
from cluster.sweeps.progress import LONGEST_ERROR, Epoch, figures_of_node, known_figures
from cluster.sweeps.sweep_file import (
    SEED,
    SETTINGS_PREFIX,
    Range,
    RunSettings,
    SweepError,
    SweepFile,
    axes_of,
)
from core.documents import InventoryError, InventoryProblem, yaml_words
from core.documents.yaml_document import KeyPath
from core.logs import one_line

if TYPE_CHECKING:
    from core.inventory import Inventory


MODE = "jobs.train.mode"
SINGLE = "single"
"""The mode of a run that one node trains by itself."""
ENOUGH_PROBLEMS = 20


def override(key: str, value: Any) -> str:
    """The setting as `--set` takes it: JSON is YAML."""
    return f"{key}={json.dumps(value)}"


def planned_runs(sweep: SweepFile) -> tuple[RunRecord, ...]:
    """The runs of a grid or a list: every seed of the first settings, then of the next.

    None of a search.
    """
    pairs = [(choice.settings, seed) for choice in sweep.choices for seed in sweep.seeds]
    return tuple(RunRecord(run_id(at), *pair) for at, pair in enumerate(pairs, 1))


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


def choices_of(
    sweep: SweepFile, set_arguments: Sequence[str]
) -> list[tuple[RunSettings, tuple[str, ...]]]:
    """Return each setting, and all overrides of its first run; of a search those at its ends."""
    base = base_overrides(sweep, set_arguments)
    return [
        (choice, overrides_of(base, sweep.placement, choice.settings, sweep.seeds[0]))
        for choice in sweep.choices or corners(sweep)
    ]


def fingerprint(sweep: SweepFile) -> str:
    """Return what says that a file is still that of a resumed sweep: its runs, however written."""
    content = [
        sweep.placement,
        sweep.seeds,
        sorted(sweep.base.items(), key=lambda item: item[0]),
        [sorted(choice.settings.items(), key=lambda item: item[0]) for choice in sweep.choices],
        None if sweep.search is None else sweep.search.model_dump(),
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
        trainings = dict[str, RunSettings]()
        for choice, overrides in choices_of(sweep, set_arguments):
            try:
                inventory = load(overrides)
            except InventoryError as error:
                choice_problems = [_located(sweep, choice, problem) for problem in error.problems]
            else:
                choice_problems = _shared_devices(sweep, inventory)
                twin = trainings.setdefault(repr(inventory.jobs.train), choice)
                if twin is not choice and sweep.search is None:
                    choice_problems.append(_twins(sweep, choice, twin))
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
    what = f"{crowded[0].name} and the other workers of its machine would share one {kind}"
    remedy = "keep one worker on that machine, or write placement: cluster"
    return [InventoryProblem(sweep.file, "placement", what, remedy)]


def _twins(sweep: SweepFile, choice: RunSettings, twin: RunSettings) -> InventoryProblem:
    """Return the problem of settings that the inventory reads as the same, such as 1 and 1.0."""
    if choice.entry is not None and twin.entry is not None:
        place = choice.entry
        twin_place = twin.entry
    else:
        key = next(
            key for key, value in choice.settings.items() if repr(value) != repr(twin.settings[key])
        )
        place = choice.places[key]
        twin_place = twin.places[key]
    twin_name = ".".join(map(str, twin_place))
    return sweep.problem(
        place, f"trains the same as {twin_name}", "remove one of the two; `seeds:` repeats runs"
    )


def _clashes(sweep: SweepFile, set_arguments: Sequence[str]) -> list[InventoryProblem]:
    """Keys that the placement or --set decide."""
    problems = []
    choices = sweep.choices or corners(sweep)
    keys = {SEED}.union(*(choice.settings for choice in choices))
    for argument in set_arguments:
        key = argument.partition("=")[0].strip()
        if key in keys:
            remedy = "leave out --set, or change the file"
            problems.append(
                InventoryProblem(sweep.file, key, "the sweep sets it", remedy, override=argument)
            )
    if sweep.placement == "node":
        places = {choice.places[MODE] for choice in choices if MODE in choice.places}
        if sweep.base.get(MODE, SINGLE) != SINGLE:
            places.add(("base", MODE))
        problems += [
            sweep.problem(
                place,
                "each node trains by itself, in mode single",
                "leave it out, or write `placement: cluster`",
            )
            for place in sorted(places, key=str)
        ]
    return problems


def corners(sweep: SweepFile) -> tuple[RunSettings, ...]:
    """Return settings of a search with the first and the last value of each dimension."""
    if sweep.search is None:
        return ()
    space = sweep.search.space
    places: dict[str, KeyPath] = {key: ("search", "space", key) for key in space}
    ends = {
        key: (dimension.ends if isinstance(dimension, Range) else dimension)
        for key, dimension in space.items()
    }
    return tuple(
        RunSettings({key: values[at] for key, values in ends.items()}, places) for at in (0, -1)
    )


def _located(sweep: SweepFile, choice: RunSettings, problem: InventoryProblem) -> InventoryProblem:
    """The problem where the sweep's file says what is wrong, if the file says it."""
    settings = {**sweep.base, **choice.settings}
    key = (problem.override or "").partition("=")[0]
    if key not in settings or problem.override != override(key, settings[key]):
        return problem
    path = choice.places.get(key, ("base", key))
    value = problem.value
    if value is None and not isinstance(settings[key], dict | tuple):
        value = yaml_words(settings[key])
    inner = problem.key.removeprefix(key).lstrip(".")
    problem_here = sweep.problem(path, problem.problem, problem.remedy, value)
    if inner:
        return replace(problem_here, key=f"{problem_here.key}.{inner}")
    return problem_here


def is_setting(argument: str) -> bool:
    """Return whether an override concerns the training, which a sweep keeps.

    The others concern the cluster.
    """
    return argument.partition("=")[0].strip().startswith(SETTINGS_PREFIX)


MOST_ENDINGS = 5
"""Times that a run's process may be killed, or end without a result; then the run failed."""
MOST_STRIKES = 3
"""Runs in a row that a node may lose this way before it gets no more, while there are others."""


@dataclass(frozen=True)
class RunExit:
    """How a run's process ended. `result` is its `result.json`, where there is one.

    `lost`: the node hung up before it ended. `description` says what it was, in one line.
    """

    result: Mapping[str, Any] | None
    description: str
    lost: bool = False
    ended_by_us: bool = False
    hopeless: bool = False
    """The process refused its settings: another attempt would too."""


class FixedRuns:
    """The runs are known: none is drawn, and none is ended early."""

    @property
    def to_come(self) -> int:
        """Runs that are not drawn yet."""
        return 0

    def next_run(self) -> RunRecord | None:
        """The next run of a search; None where there is none, or none yet."""
        return None

    def epoch_ended(self, run: RunRecord, epoch: Epoch) -> str:
        """Why to end the run now; empty to let it run."""
        return ""

    def over(self, run: RunRecord) -> None:
        """The run is over, with its figures on the validation where it has some."""


class Schedule:
    """Hands out the runs of a record, and keeps the record.

    A run is with one node at a time: its lease.
    """

    def __init__(self, record: SweepRecord, trials: FixedRuns | None = None) -> None:
        """The `trials` of a search draw further runs."""
        running = (run for run in record.runs if run.state == "running")
        for run in running:  # of a driver that died
            record = record.with_run(replace(run, state="waiting"))
        self.record = record
        self.trials = trials or FixedRuns()
        self._endings: dict[str, int] = {}
        self._strikes: dict[str, int] = {}

    @property
    def open(self) -> bool:
        """Whether a run waits or is with a node."""
        return any(run.state not in OVER for run in self.record.runs)

    def lease_next(self, node: str, other_nodes: Collection[str] = ()) -> RunRecord | None:
        """The next run for a free node, which has it from now on; None where none waits.

        A run that the node began itself comes first: its checkpoint may be there. One that another
        of the nodes that are there (`other_nodes`) began waits for that node.
        """
        waiting = [run for run in self.record.runs if run.state == "waiting"]
        own_runs = [run for run in waiting if run.node == node]
        free = [run for run in waiting if run.node is None or run.node not in other_nodes]
        next_run = next(iter((*own_runs, *free)), None) or self.trials.next_run()
        if next_run is None:
            return None
        leased_run = replace(next_run, state="running", node=node, error=None)
        record = self.record.with_run(leased_run)
        self.record = replace(record, axes=axes_of([run.settings for run in record.runs]))
        return leased_run

    def ended(self, node: str, ending: RunExit, seconds: float, folder: str | None) -> RunRecord:
        """The node's run after its process ended, `seconds` after it began there."""
        run = self._returned(node, seconds)
        run = replace(run, folder=folder or run.folder)
        result = ending.result or {}
        status = result.get("status")
        if status == "done":
            selected = known_figures(result.get("selected"))
            selected.pop("epoch", None)
            changed = replace(
                run,
                state="finished",
                final=figures_of_node(result.get("final")),
                selected=selected or None,
            )
            self._strikes[node] = 0
        elif status == "failed" and not ending.lost:
            changed = _failed(run, str(result.get("reason") or ending.description))
        elif ending.hopeless:
            changed = _failed(run, ending.description)
        else:
            changed = self._interrupted(node, run, ending)
        self.record = self.record.with_run(changed)
        return changed

    def pruned(self, node: str, seconds: float, why: str) -> RunRecord:
        """The node's run, which the search ended early."""
        changed = replace(_failed(self._returned(node, seconds), why), state="pruned")
        self.record = self.record.with_run(changed)
        return changed

    def _returned(self, node: str, seconds: float) -> RunRecord:
        """The run that the node has no more, with the seconds it spent on it."""
        running = (run for run in self.record.runs if run.state == "running")
        run = next(run for run in running if run.node == node)
        return replace(run, seconds=round(run.seconds + seconds, 3))

    def gone(self, node: str) -> None:
        """The node is there no more: what it began may go elsewhere."""
        for run in self.record.runs:
            if run.state == "waiting" and run.node == node:
                self.record = self.record.with_run(replace(run, node=None))

    def is_set_aside(self, node: str, nodes: int) -> bool:
        """Return whether the node lost too many runs in a row to get another.

        It is one of `nodes` that are there; the only one is never set aside.
        """
        return nodes > 1 and self._strikes.get(node, 0) >= MOST_STRIKES

    def _interrupted(self, node: str, run: RunRecord, ending: RunExit) -> RunRecord:
        if ending.ended_by_us:
            return replace(run, state="waiting")
        if ending.lost:
            return replace(run, state="waiting", node=None)
        self._strikes[node] = self._strikes.get(node, 0) + 1
        count = self._endings[run.id] = self._endings.get(run.id, 0) + 1
        if count >= MOST_ENDINGS:
            message = (
                f"its process ended {count} times without a result, at last: {ending.description}"
            )
            return _failed(run, message)
        return replace(
            run, state="waiting", node=node if self._strikes[node] < MOST_STRIKES else None
        )


def _failed(run: RunRecord, why: str) -> RunRecord:
    return replace(run, state="failed", error=one_line(why)[:LONGEST_ERROR])
