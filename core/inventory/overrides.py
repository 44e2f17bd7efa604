"""The `--set key=value` of a call, put in the place of values of the file."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from core.documents.problem import (
    InventoryProblem,
    suggestion,
)
from core.documents.yaml_document import MAXIMUM_DEPTH, KeyPath, parse
from core.inventory.recipes import SECTION_NAMES
from core.inventory.sources import Sources

_REMEDY = "write it like jobs.train.epochs=3 or nodes.rpi03.address=192.168.1.18"


@dataclass(frozen=True)
class _Override:
    argument: str
    key: str
    path_segments: tuple[str, ...]
    value: Any

    @property
    def names_a_variant(self) -> bool:
        """Whether it says which model, optimizer or schedule, rather than one of its knobs."""
        match self.path_segments:
            case ("jobs", "train", section, "name"):
                return section in SECTION_NAMES
        return False


class _OverrideError(Exception):
    """Problem and remedy, in that order."""


def apply(arguments: Sequence[str], sources: Sources) -> list[InventoryProblem]:
    """Replace values in `sources`; later overrides win.

    Returns the problems of those that cannot be applied.

    A new `name` for a model, an optimizer or a schedule drops the options in the file for the old
    one, at any position among the overrides: an inventory for one network can be tried with
    another.
    """
    problems: list[InventoryProblem] = []
    overrides: list[_Override] = []

    def refuse(argument: str, key: str, problem: str, remedy: str) -> None:
        problems.append(InventoryProblem(sources.file, key, problem, remedy, override=argument))

    for argument in arguments:
        key, equals, text = argument.partition("=")
        path_segments = tuple(part.strip() for part in key.split("."))
        document = parse(text, sources.file)
        is_path = all(path_segments) and len(path_segments) <= MAXIMUM_DEPTH
        if not equals or not is_path or not key.isprintable():
            refuse(argument, "", "expected KEY=VALUE", _REMEDY)
        elif document.problems:
            refuse(argument, key, document.problems[0].problem, "put the value in quotes")
        else:
            overrides.append(_Override(argument, key, path_segments, document.value))
    for override in sorted(overrides, key=lambda override: not override.names_a_variant):
        try:
            path = _place(override, sources)
        except _OverrideError as error:
            refuse(override.argument, override.key, *error.args)
            continue
        if override.names_a_variant and sources.at(path) != override.value:
            sources.replace(path[:-1], {}, override.argument)
        sources.replace(path, override.value, override.argument)
    return problems


def _place(override: _Override, sources: Sources) -> KeyPath:
    """The path the override means, with nodes named instead of counted."""
    path: KeyPath = ()
    for part in override.path_segments:
        holder = sources.at(path)
        if isinstance(holder, tuple):
            path = (*path, _position(part, holder, sources.key(path)))
        elif isinstance(holder, dict) or holder is None or holder is sources.ABSENT:
            path = (*path, part)
        else:
            where = sources.key(path)
            raise _OverrideError(
                f"{where} is a value and has no key {part!r}", f"write {where}=VALUE"
            )
    return path


def _position(part: str, items: tuple[Any, ...], where: str) -> int:
    names = [item.get("name") if isinstance(item, dict) else None for item in items]
    if part in names:
        return names.index(part)
    if part.isascii() and part.isdigit() and len(part) < 6 and int(part) < len(items):
        return int(part)
    string_names = [name for name in names if isinstance(name, str)]
    if string_names:
        choices = ", ".join(string_names)
    else:
        choices = f"0 to {len(items) - 1}"
    remedy = suggestion(part, string_names) or f"choose one of {choices}"
    raise _OverrideError(f"nothing is called {part!r} in {where}", remedy)
