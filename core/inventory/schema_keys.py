"""Which keys the schema knows at a place.

Suggestions after a misspelling and the generated reference ask for them.
"""

import types
from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache
from itertools import islice
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from core.documents import suggestion
from core.ground import gone
from core.inventory.fields import Section
from core.inventory.schema import InventoryFile

LOOKED_UP = 200
"""Most unknown keys to compare with the known ones: a comparison takes a millisecond on a Pi."""


def key_of(name: str, field: FieldInfo) -> str:
    """The key in the file for a field of the schema."""
    return field.alias or name


def keys_of(section: type[Section]) -> list[str]:
    """The keys of a section in the order of the schema."""
    return [key_of(name, field) for name, field in section.model_fields.items()]


def sections_in(annotation: Any) -> list[type[Section]]:
    """The sections an annotation allows: itself, the branches of a union, the items of a list."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return [annotation]
    if get_origin(annotation) is Annotated:
        return sections_in(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType, tuple):
        return [section for branch in get_args(annotation) for section in sections_in(branch)]
    return []


def section_at(location: tuple[str | int, ...]) -> type[Section] | None:
    """Return the section at one of pydantic's error locations, or None where there is not one.

    They name the branch of a union after its field.
    """
    branches = _follow(location)[0]
    if len(branches) == 1:
        return branches[0]
    return None


def plain_path(location: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """The location without the names of union branches: where the value lies in the document."""
    return _follow(location)[1]


def _follow(location: tuple[str | int, ...]) -> tuple[list[type[Section]], tuple[str | int, ...]]:
    branches: list[type[Section]] = [InventoryFile]
    path: list[str | int] = []
    for part in location:
        named = [branch for branch in branches if len(branches) > 1 and branch_name(branch) == part]
        if named:
            branches = named
            continue
        path.append(part)
        if not isinstance(part, int):
            if branches:
                fields = branches[0].model_fields
            else:
                fields = {}
            matching_field = next(
                (field for name, field in fields.items() if key_of(name, field) == part), None
            )
            if matching_field is not None:
                branches = sections_in(matching_field.annotation)
            else:
                branches = []
    return branches, tuple(path)


def branch_name(section: type[Section]) -> Any:
    """Return what `name:` says to choose this section among those a key allows.

    None where there is no choice.
    """
    field = section.model_fields.get("name")
    if field is None:
        return None
    return field.default


@cache
def everywhere(
    section: type[Section] = InventoryFile, path: str = ""
) -> tuple[tuple[str, str], ...]:
    """Every key of the schema with the words for the section it belongs to."""
    places: list[tuple[str, str]] = []
    for name, field in section.model_fields.items():
        key = key_of(name, field)
        places.append((key, path or "the top level"))
        inner = sections_in(field.annotation)
        for branch in inner:
            if path:
                inner_path = f"{path}.{key}"
            else:
                inner_path = key
            places += everywhere(
                branch,
                f"{inner_path} with `name: {branch_name(branch)}`"
                if len(inner) > 1
                else inner_path,
            )
    return tuple(places)


def is_misspelt(key: str, document: object, section: type[Section]) -> bool:
    """Return whether a missing key was given under a misspelling.

    The misspelling is then the one problem to report.
    """
    keys = keys_of(section)
    if isinstance(document, dict):
        names: Iterable[str] = document
    else:
        names = ()
    unknown = (other for other in names if other not in keys)
    looked_at = islice(unknown, LOOKED_UP)
    return any(get_close_matches(other, keys, n=1) == [key] for other in looked_at)


def advice(key: str, section: type[Section] | None) -> str:
    """The remedy for an unknown key: the nearest known one, or the section it belongs to."""
    if section is None:
        keys = []
    else:
        keys = keys_of(section)
    if key in gone.KEYS:
        return gone.KEYS[key]
    if near := suggestion(key, keys):
        return near
    elsewhere = sorted(
        {location for other, location in everywhere() if other == key and key != "name"}
    )
    if elsewhere:
        return f"it belongs to {' or '.join(elsewhere)}"
    if keys:
        return f"the keys here are {', '.join(keys)}"
    return "there are no keys here: remove it"
