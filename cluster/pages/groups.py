"""Several runs: which belong together because only their seed differs, and what differs between the others."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from cluster.pages.report_tables import settings_of
from cluster.pages.run_files import Run, number_of

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
OF_THE_SEED = frozenset({"seed"})
"""Settings that runs of one group may differ in."""


@dataclass(frozen=True)
class Named:
    """A run with the letter it has on the page."""

    letter: str
    run: Run
    settings: dict[str, str]


@dataclass(frozen=True)
class Group:
    """Runs of one job that differ in their seed at most."""

    runs: tuple[Named, ...]

    @property
    def name(self) -> str:
        """`A`, or `A B C, 3 seeds`."""
        letters = " ".join(named.letter for named in self.runs)
        return letters if len(self.runs) == 1 else f"{letters}, {len(self.runs)} runs"


@dataclass(frozen=True)
class Difference:
    """A setting and its value in each run."""

    key: str
    values: tuple[str, ...]
    differs: bool


def named(runs: Sequence[Run]) -> list[Named]:
    """The runs with their letters."""
    letters = [*LETTERS, *(first + second for first in LETTERS for second in LETTERS)]
    return [Named(letter, run, settings_of(run)) for letter, run in zip(letters, runs, strict=False)]


def groups_of(runs: Sequence[Named]) -> list[Group]:
    """The groups, in the order of their first runs."""
    found: dict[tuple[str, frozenset[tuple[str, str]]], list[Named]] = {}
    for one in runs:
        alike = frozenset((key, value) for key, value in one.settings.items() if key not in OF_THE_SEED)
        found.setdefault((one.run.view.job, alike), []).append(one)
    return [Group(tuple(members)) for members in found.values()]


def differences(runs: Sequence[Named]) -> list[Difference]:
    """Every setting, those that differ first."""
    keys = dict.fromkeys(key for one in runs for key in one.settings)
    found = []
    for key in keys:
        values = tuple(one.settings.get(key, "not set") for one in runs)
        found.append(Difference(key, values, len(set(values)) > 1))
    return sorted(found, key=lambda difference: not difference.differs)


@dataclass(frozen=True)
class Compared:
    """A figure of each run, and of each group its mean and spread; None where a run does not have it."""

    name: str
    hint: str
    values: tuple[float | None, ...]
    groups: tuple[tuple[float, float] | None, ...]
    """Mean and sample standard deviation, of groups of two and more."""
    written: Callable[[float | None], str]


def compared(
    name: str,
    hint: str,
    written: Callable[[float | None], str],
    of: Callable[[Run], float | None],
    runs: Sequence[Named],
    groups: Sequence[Group],
) -> Compared:
    """One line of the table of figures."""
    values = tuple(of(one.run) for one in runs)
    spreads = []
    for group in groups:
        known = [value for value in (of(one.run) for one in group.runs) if value is not None]
        spreads.append((fmean(known), stdev(known)) if len(known) > 1 else None)
    return Compared(name, hint, values, tuple(spreads), written)


def result_number(*keys: str) -> Callable[[Run], float | None]:
    """What gives that number of a run's result."""
    return lambda run: number_of(run.result, *keys)
