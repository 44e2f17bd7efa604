"""docs/inventory.md from the schema: `python -m cluster.inventory.reference` prints it, `--write` saves it."""

import argparse
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo

from cluster.inventory.fields import Section
from cluster.inventory.recipes import RECIPES
from cluster.inventory.reference_pages import HEAD
from cluster.inventory.schema import Description
from cluster.inventory.schema_keys import branch_name, is_list, key_of, sections_in
from cluster.logs.terminal import say

PAGE = Path("docs/inventory.md")


def render_reference() -> str:
    """The page in Markdown: every section of the schema with its keys, types, ranges, defaults and meanings."""
    lines = [HEAD.format(thesis=_recipe_table()), *_section(Description, "", "The top level")]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip("\n") + "\n"


def _recipe_table() -> str:
    rows = [f"| `{key}` | {_plain(value)} |" for key, value in RECIPES["thesis"].items()]
    return "\n".join(["| key of `jobs.train` | in the recipe `thesis` |", "|---|---|", *rows])


def _plain(value: Any) -> str:
    if not isinstance(value, Mapping):
        return f"`{json.dumps(value)}`"
    return "`{" + ", ".join(f"{key}: {json.dumps(item).strip(chr(34))}" for key, item in value.items()) + "}`"


def _section(section: type[Section], path: str, title: str) -> list[str]:
    lines = [f"## {title}", "", *_summary(section), "", "| key | value | default | meaning |", "|---|---|---|---|"]
    below: dict[type[Section], list[str]] = {}
    titles: dict[type[Section], list[str]] = {}
    for name, field in section.model_fields.items():
        key = key_of(name, field)
        sections = [found for found in sections_in(field.annotation) if found.model_fields]
        cells = [f"`{key}`", _value(field, sections), _default(field, sections), _meaning(field, sections)]
        lines.append(f"| {' | '.join(cells)} |")
        for found in sections:
            inner_path = f"{path}.{key}" if path else key
            below.setdefault(found, []).append(inner_path)
            titles.setdefault(found, []).append(_title(inner_path, field, found, sections))
    inner = [line for found, paths in below.items() for line in _section(found, paths[0], ", ".join(titles[found]))]
    return [*lines, "", *inner]


def _title(path: str, field: FieldInfo, section: type[Section], sections: list[type[Section]]) -> str:
    if len(sections) > 1:
        return f"`{path}` with `name: {branch_name(section)}`"
    return f"Each entry of `{path}`" if is_list(field.annotation) else f"`{path}`"


def _summary(section: type[Section]) -> list[str]:
    return [line.strip() for line in (section.__doc__ or "").strip().splitlines()]


def _meaning(field: FieldInfo, sections: list[type[Section]]) -> str:
    if field.description:
        return field.description.replace("|", "\\|")
    return _summary(sections[0])[0] if len(sections) == 1 else "which one its key `name` says"


def _value(field: FieldInfo, sections: list[type[Section]]) -> str:
    if len(sections) > 1:
        return "one of " + ", ".join(f"`{branch_name(section)}`" for section in sections)
    if sections:
        return "list" if is_list(field.annotation) else "section"
    return _words(field.annotation, list(field.metadata))


def _words(annotation: Any, metadata: list[Any]) -> str:
    if get_origin(annotation) is Annotated:
        inner, *more = get_args(annotation)
        return _words(inner, [*metadata, *more])
    if get_origin(annotation) is Literal:
        return " or ".join(f"`{choice}`" for choice in get_args(annotation))
    if get_origin(annotation) is tuple:
        return "list of whole numbers"
    branches = get_args(annotation)
    if branches:
        return " or ".join(_words(branch, metadata) for branch in branches)
    names = {int: "whole number", float: "number", str: "text", bool: "`true` or `false`", type(None): "`null`"}
    word = names.get(annotation, "section")
    return word if annotation not in (int, float) else " ".join([word, *_range(metadata)])


def _range(metadata: list[Any]) -> list[str]:
    flat = [entry for item in metadata for entry in (item.metadata if isinstance(item, FieldInfo) else [item])]
    bounds = {Ge: "≥ {0.ge:,}", Gt: "> {0.gt:,}", Le: "≤ {0.le:,}", Lt: "< {0.lt:,}"}
    found = [text.format(entry) for kind, text in bounds.items() for entry in flat if isinstance(entry, kind)]
    return [", ".join(found)] if found else []


def _default(field: FieldInfo, sections: list[type[Section]]) -> str:
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=False)
    if isinstance(default, Section):
        return f"`{branch_name(type(default))}`" if len(sections) > 1 else "its defaults"
    return f"`{json.dumps(default)}`"


def main(arguments: list[str] | None = None) -> int:
    """Print the page, or write it into the project."""
    return print_or_write("cluster.inventory.reference", PAGE, render_reference(), arguments)


def print_or_write(module: str, path: Path, page: str, arguments: list[str] | None) -> int:
    """The command line of every page that is made from the code; `path` is relative to the project."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=f"{path}, made from the code.")
    parser.add_argument("--write", action="store_true", help=f"write {path} instead of printing")
    if parser.parse_args(arguments).write:
        (Path(__file__).parents[2] / path).write_text(page, encoding="utf-8")
    else:
        say(page, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
