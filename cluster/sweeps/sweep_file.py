"""The file of a sweep: its keys, read strictly.

Every mistake is named at once, with its line and the nearest key.
"""

import stat
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, get_args

from cluster.pages.files import Axis, Placement
from cluster.sweeps.reader import DocumentReader, Search, search_of
from core.documents import InventoryError, InventoryProblem, printable
from core.documents.yaml_document import KeyPath, parse

PLACEMENTS: tuple[Placement, ...] = get_args(Placement)

KEYS = ("name", "base", "grid", "runs", "search", "seeds", "placement")
KINDS = ("grid", "runs", "search")
"""Exactly one of them says which runs there are."""

MOST_RUNS = 2000
MOST_SEEDS = 1000
LARGEST_SEED = 2**31 - 1
MAXIMUM_BYTES = 128 * 1024
LONGEST_NAME = 63


class SweepError(InventoryError):
    """A file of a sweep that cannot be used. The message lists every problem, one a line."""


@dataclass(frozen=True)
class RunSettings:
    """The settings of one run without seed and `base`; `places` has where its keys are written."""

    settings: Mapping[str, Any]
    places: Mapping[str, KeyPath]


@dataclass(frozen=True)
class SweepFile:
    """What the file says. `choices` are empty for a `search`, which draws them."""

    file: str
    name: str
    placement: Placement
    base: Mapping[str, Any]
    choices: tuple[RunSettings, ...]
    axes: tuple[Axis, ...]
    search: Search | None
    seeds: tuple[int, ...]
    lines: Mapping[KeyPath, int]

    @property
    def run_count(self) -> int:
        """Return the number of runs; of a search, at most."""
        return len(self.seeds) * (len(self.choices) if self.search is None else self.search.trials)

    def place_of(self, choice: RunSettings, key: str) -> KeyPath:
        """Return where the setting `key` of a run is written."""
        return choice.places.get(key, ("base", key))


def read_sweep_file(path: Path) -> SweepFile:
    """Read the file. Raises SweepError, a UsageError, with every problem."""
    file = printable(str(path))
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise _one(
                file,
                "not an ordinary file",
                "name the YAML file of a sweep, e.g. sweeps/example.yaml",
            )
        with path.open("rb") as stream:
            content = stream.read(MAXIMUM_BYTES + 1)
    except FileNotFoundError:
        raise _one(
            file, "no such file", "name the YAML file of a sweep, e.g. sweeps/example.yaml"
        ) from None
    except (OSError, ValueError) as problem:
        why = getattr(problem, "strerror", None) or problem
        raise _one(file, f"cannot be read: {why}", "check the path and its permissions") from None
    if len(content) > MAXIMUM_BYTES:
        raise _one(
            file, f"longer than {MAXIMUM_BYTES} bytes", "name a sweep: this is another kind of file"
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise _one(file, f"not UTF-8 at byte {problem.start}", "save the file as UTF-8") from None
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
    reader = DocumentReader(document)
    sweep = _read(reader, name)
    if reader.problems:
        raise SweepError(reader.problems)
    return sweep


def _one(file: str, what: str, remedy: str) -> SweepError:
    return SweepError([InventoryProblem(file, "", what, remedy)])


def _read(reader: DocumentReader, name: str) -> SweepFile:
    top = reader.top
    reader.refuse_unknown(top, KEYS)
    kinds = [kind for kind in KINDS if kind in top]
    if len(kinds) != 1:
        reader.add(
            (),
            f"expected one of {', '.join(KINDS)}, got {' and '.join(kinds) or 'none'}",
            "write one of them",
        )
    base = reader.mapping(("base",), top.get("base"))
    for key in base:
        reader.setting(("base", key), key)
    if "grid" in kinds:
        axes, choices = _grid(reader)
    elif "runs" in kinds:
        axes, choices = _runs(reader)
    else:
        axes, choices = ((), ())
    if "search" in kinds:
        search = search_of(reader, top["search"])
    else:
        search = None
    seeds = _seeds(reader, search)
    sweep = SweepFile(
        reader.file,
        _name(reader, name),
        _placement(reader),
        base,
        choices,
        axes,
        search,
        seeds,
        reader.lines,
    )
    if sweep.run_count > MOST_RUNS:
        reader.add(
            (),
            f"{sweep.run_count} runs, at most {MOST_RUNS} are possible",
            "divide it into several sweeps",
        )
    return sweep


def _name(reader: DocumentReader, usual: str) -> str:
    if "name" not in reader.top:
        safe_name = "".join(
            character if character.isascii() and (character.isalnum() or character in "-_") else "-"
            for character in usual
        )
        return safe_name[:LONGEST_NAME].strip("-_") or "sweep"
    name = reader.top["name"]
    plain = (
        isinstance(name, str)
        and name.isascii()
        and name.replace("-", "").replace("_", "").isalnum()
    )
    if not plain or len(name) > LONGEST_NAME:
        remedy = f"use letters, digits, `-` and `_`, at most {LONGEST_NAME}"
        reader.add(("name",), "not a name", remedy, name)
    return str(name)


def _placement(reader: DocumentReader) -> Placement:
    placement_name = reader.word(("placement",), reader.top.get("placement", "node"), PLACEMENTS)
    return next(placement for placement in PLACEMENTS if placement == placement_name)


def _seeds(reader: DocumentReader, search: Search | None) -> tuple[int, ...]:
    if "seeds" not in reader.top:
        return (0,)
    entries = reader.items(("seeds",), reader.top["seeds"])
    seeds = [reader.whole(("seeds", at), seed, 0, LARGEST_SEED) for at, seed in enumerate(entries)]
    for at, seed in enumerate(entries):
        if any(_same(seed, other) for other in entries[:at]):
            reader.add(("seeds", at), "given twice", "remove one of the two", seed)
    if len(seeds) > MOST_SEEDS:
        reader.add(
            ("seeds",), f"{len(seeds)} seeds, at most {MOST_SEEDS} are possible", "remove some"
        )
    if search is not None and len(seeds) > 1:
        remedy = "write one seed; train what the search found again with `runs:` and several"
        reader.add(("seeds",), "a search compares trials of one seed", remedy)
    return tuple(seeds) or (0,)


def _grid(reader: DocumentReader) -> tuple[tuple[Axis, ...], tuple[RunSettings, ...]]:
    section = reader.mapping(("grid",), reader.top["grid"])
    if not section:
        reader.add(("grid",), "no key", "write e.g. `jobs.train.model.hidden: [8, 16]` below it")
    axes = []
    size = 1
    for key, values in section.items():
        reader.setting(("grid", key), key)
        axis_values = reader.items(("grid", key), values)
        for at, value in enumerate(axis_values):
            if any(_same(value, other) for other in axis_values[:at]):
                reader.add(("grid", key, at), "given twice", "remove one of the two", value)
        axes.append(Axis(key, axis_values))
        size *= max(1, len(axis_values))
    if size > MOST_RUNS:
        reader.add(
            ("grid",),
            f"{size} runs, at most {MOST_RUNS} are possible",
            "divide it into several sweeps",
        )
        return tuple(axes), ()
    choices = []
    for chosen in product(*(enumerate(axis.values) for axis in axes)):
        settings = {axis.key: value for axis, (_, value) in zip(axes, chosen, strict=True)}
        places = {
            axis.key: ("grid", axis.key, at) for axis, (at, _) in zip(axes, chosen, strict=True)
        }
        choices.append(RunSettings(settings, places))
    return tuple(axes), tuple(choices)


def _runs(reader: DocumentReader) -> tuple[tuple[Axis, ...], tuple[RunSettings, ...]]:
    choices: list[RunSettings] = []
    for at, entry in enumerate(reader.items(("runs",), reader.top["runs"])):
        settings = reader.mapping(("runs", at), {} if entry is None else entry)
        for key in settings:
            reader.setting(("runs", at, key), key)
        if any(_same(settings, other.settings) for other in choices):
            reader.add(
                ("runs", at),
                "the same settings twice",
                "remove one of the two; `seeds:` repeats runs",
            )
        choices.append(RunSettings(settings, {key: ("runs", at, key) for key in settings}))
    return axes_of([choice.settings for choice in choices]), tuple(choices)


def axes_of(settings: list[Mapping[str, Any]]) -> tuple[Axis, ...]:
    """The keys of some runs and the values each takes, in the order in which they come."""
    keys = dict.fromkeys(key for run_settings in settings for key in run_settings)
    axes = []
    for key in keys:
        values: list[Any] = []
        for run_settings in settings:
            if key in run_settings and not any(_same(run_settings[key], other) for other in values):
                values.append(run_settings[key])
        axes.append(Axis(key, tuple(values)))
    return tuple(axes)


def _same(first: Any, second: Any) -> bool:
    """Equal, and of one type: 1 is not true, and not 1.0."""
    return repr(first) == repr(second)
