"""What is wrong with an inventory, and what to do, in place of the words of pydantic."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from core.documents.problem import (
    LISTED_PROBLEMS,
    InventoryProblem,
    suggestion,
)
from core.documents.yaml_document import parse
from core.inventory.schema_keys import advice, is_misspelt, plain_path, section_at
from core.inventory.sources import Sources

_FILE = Path(__file__).with_suffix(".yaml")


@cache
def _tables() -> dict[str, dict[str, tuple[str, str]]]:
    """Return the tables of the file: most inventories need none of its words."""
    tables: dict[str, dict[str, tuple[str, str]]] = parse(
        _FILE.read_text(encoding="utf-8"), _FILE.name
    ).value
    return tables


def explain(error: ValidationError, sources: Sources) -> list[InventoryProblem]:
    """Return one problem for each of pydantic's findings.

    The first `LISTED_PROBLEMS` in the file have a remedy.
    """
    details = error.errors(include_url=False, include_input=False)
    causes = [detail for detail in details if not _is_consequence(detail, sources)]
    causes.sort(key=lambda detail: sources.origin(plain_path(detail["loc"]))[0] or 0)
    first_causes = causes[:LISTED_PROBLEMS]
    further_causes = causes[LISTED_PROBLEMS:]
    rest = (
        sources.problem(plain_path(detail["loc"]), detail["msg"], "see docs/inventory.md")
        for detail in further_causes
    )
    return [*(_explain(detail, sources) for detail in first_causes), *rest]


def _is_consequence(detail: ErrorDetails, sources: Sources) -> bool:
    """Return whether the finding follows from another one.

    A key is missing because it is misspelt, or a list is empty because its entries are wrong.
    """
    location = detail["loc"]
    if detail["type"] == "too_short":
        return bool(sources.at(plain_path(location)))
    section = section_at(location[:-1])
    if detail["type"] != "missing" or section is None:
        return False
    return is_misspelt(str(location[-1]), sources.at(plain_path(location[:-1])), section)


def _explain(detail: ErrorDetails, sources: Sources) -> InventoryProblem:
    location = detail["loc"]
    if detail["type"] == "union_tag_invalid":
        location = (*location, "name")
    path = plain_path(location)
    value = sources.at(path)
    problem, remedy = _words(detail["type"], detail.get("ctx", {}), detail["msg"], location, value)
    return sources.problem(path, problem, remedy)


def _choice(kind: str, expected: str, value: object) -> tuple[str, str]:
    choices = expected.replace("'", "").replace(" or ", ", ").split(", ")
    if isinstance(value, str):
        remedy = suggestion(value, choices)
    else:
        remedy = None
    return f"unknown {kind}, expected {expected}", remedy or "write one of them"


def _words(
    kind: str,
    context: Mapping[str, Any],
    message: str,
    location: tuple[str | int, ...],
    value: object,
) -> tuple[str, str]:
    if location:
        key = str(location[-1])
    else:
        key = ""
    if "remedy" in context:
        return message, str(context["remedy"])
    if kind == "extra_forbidden":
        if location[-3:-2] == ("roles",):
            what = "unknown role"
        else:
            what = "unknown key"
        return what, advice(key, section_at(location[:-1]))
    if kind == "int_type" and isinstance(value, float) and value.is_integer():
        return "expected a whole number", f"write {value:.0f}"
    tables = _tables()
    if kind in tables["kinds"]:
        problem, remedy = tables["kinds"][kind]
        return problem.format(**context), remedy.format(**context, key=key)
    if kind in ("literal_error", "union_tag_invalid"):
        if key == "name":
            word = str(location[-2])
        else:
            word = key
        return _choice(word, str(context.get("expected") or context.get("expected_tags")), value)
    if kind == "string_pattern_mismatch":
        return tables["patterns"].get(
            key, ("not usable here", "remove blanks and control characters")
        )
    return message, "see docs/inventory.md"
