"""`--set key=value`: one value of the inventory replaced for one call."""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from cluster.inventory.problem import Problem
from cluster.inventory.recipes import SECTION_NAMES
from cluster.inventory.sources import Sources
from cluster.inventory.yaml_document import KeyPath, parse

_REMEDY = "write it like jobs.train.epochs=3 or nodes.rpi03.address=192.168.1.18"


def apply(overrides: Sequence[str], sources: Sources) -> list[Problem]:
    """Replace values in `sources`, later overrides winning. Returns what could not be applied.

    A new `name` for a model, an optimizer or a schedule forgets the knobs the file gave the old one, whatever the
    order of the overrides: an inventory written for one network can be tried with another.
    """
    problems: list[Problem] = []
    assignments: list[tuple[KeyPath, Any, str]] = []
    for override in overrides:
        key, equals, text = override.partition("=")
        keys = tuple(part.strip() for part in key.split("."))
        document = parse(text, sources.file)
        if not equals or not all(keys):
            problems.append(_problem(override, "", "expected KEY=VALUE", _REMEDY, sources))
        elif document.problems:
            what = document.problems[0].problem
            problems.append(_problem(override, key, what, "put the value in quotes", sources))
        else:
            assignments.append((keys, document.value, override))
    assignments.sort(key=lambda assignment: not _names_section(assignment[0]))
    for keys, value, override in assignments:
        found = _assign(keys, value, override, sources)
        if found is not None:
            problems.append(found)
    return problems


def _problem(override: str, key: str, problem: str, remedy: str, sources: Sources) -> Problem:
    return Problem(sources.file, key, problem, remedy, override=override)


def _names_section(keys: KeyPath) -> bool:
    return len(keys) == 4 and keys[:2] == ("jobs", "train") and keys[2] in SECTION_NAMES and keys[3] == "name"


def _assign(keys: KeyPath, value: Any, override: str, sources: Sources) -> Problem | None:
    path: KeyPath = ()
    for position, part in enumerate(keys):
        section = sources.at(path)
        if isinstance(section, tuple):
            index = _index(str(part), section)
            if index is None:
                names = [str(item.get("name")) for item in section if isinstance(item, dict)]
                near = get_close_matches(str(part), names, n=1)
                return _problem(
                    override,
                    ".".join(str(k) for k in keys),
                    f"nothing is called {str(part)!r} in {sources.key(path)}",
                    f"did you mean `{near[0]}`?" if near else f"choose one of {', '.join(names) or range(len(section))}",
                    sources,
                )
            path = (*path, index)
        elif isinstance(section, dict) or section is None or not sources.has(path):
            path = (*path, part)
        else:
            return _problem(
                override,
                ".".join(str(k) for k in keys),
                f"{sources.key(path)} is a value, not a section with a key {str(part)!r}",
                f"write {sources.key(path)}=VALUE",
                sources,
            )
        if position == len(keys) - 1 and _names_section(keys) and sources.at(path) != value:
            sources.value = _replaced(sources.value, path[:-1], {})
    sources.value = _replaced(sources.value, path, value)
    sources.overrides[path] = override
    return None


def _index(part: str, items: tuple[Any, ...]) -> int | None:
    for index, item in enumerate(items):
        if isinstance(item, dict) and item.get("name") == part:
            return index
    return int(part) if part.isascii() and part.isdigit() and len(part) < 6 and int(part) < len(items) else None


def _replaced(tree: Any, path: KeyPath, value: Any) -> Any:
    if not path:
        return value
    head, rest = path[0], path[1:]
    if isinstance(tree, tuple):
        return tuple(_replaced(item, rest, value) if index == head else item for index, item in enumerate(tree))
    section = tree if isinstance(tree, dict) else {}
    return {**section, head: _replaced(section.get(head), rest, value)}
