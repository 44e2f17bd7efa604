"""Where each value of an inventory came from, and what is wrong with it, in our own words.

The parts of an inventory with problems that can be read are found here too.
"""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from core.documents import (
    LISTED_PROBLEMS,
    InventoryProblem,
    suggestion,
    yaml_words,
)
from core.documents.yaml_document import KeyPath, parse
from core.inventory.fields import Section
from core.inventory.nodes import Node, Page, Ports
from core.inventory.schema_keys import advice, is_misspelt, plain_path, section_at
from core.inventory.sections import Monitor, Service, Storage


class Sources:
    """The file's values with overrides applied, and the origin of each."""

    ABSENT: Final = object()
    """Answer of `at` where no value was given."""

    def __init__(self, file: str, value: Any, lines: dict[KeyPath, int]) -> None:
        self.file = file
        self.value = value
        self._lines = lines
        self._overrides: dict[KeyPath, str] = {}

    def at(self, path: KeyPath) -> Any:
        """The value at `path`, or `ABSENT`."""
        value = self.value
        for part in path:
            in_section = isinstance(value, dict) and part in value
            in_list = isinstance(value, tuple) and isinstance(part, int) and part < len(value)
            if not in_section and not in_list:
                return self.ABSENT
            value = value[part]
        return value

    def has(self, path: KeyPath) -> bool:
        """Whether a value was given at `path`."""
        return self.at(path) is not self.ABSENT

    def is_given(self, path: KeyPath) -> bool:
        """Whether a value other than null was given at `path`."""
        return self.at(path) not in (self.ABSENT, None)

    def replace(self, path: KeyPath, value: Any, override: str) -> None:
        """Put a value where an override says, making the sections on the way."""
        self.value = _replaced(self.value, path, value)
        for origins in (self._lines, self._overrides):
            for stale in [
                origin_path for origin_path in origins if origin_path[: len(path)] == path
            ]:
                del origins[stale]
        self._overrides[path] = override

    def origin(self, path: KeyPath) -> tuple[int | None, str | None]:
        """The line, or the override, of the value at `path` or of the nearest section around it."""
        for length in range(len(path), 0, -1):
            section = path[:length]
            if section in self._lines:
                return self._lines[section], None
            for overridden, override in self._overrides.items():
                if (
                    overridden[:length] == section
                ):  # itself, or a section made for what the override sets in it
                    return None, override
        return self._lines.get(()), None

    def key(self, path: KeyPath) -> str:
        """Return the path as `--set` takes it.

        `nodes.rpi03.address`, or `nodes.2.address` where the node has no name.
        """
        segments = [str(part) for part in path]
        if len(path) > 1 and path[0] == "nodes":
            name = self.at((*path[:2], "name"))
            if isinstance(name, str) and name:
                segments[1] = name
        return ".".join(segments)

    def problem(self, path: KeyPath, problem: str, remedy: str) -> InventoryProblem:
        """Return a problem with the value at `path`.

        Where there is no such value, it is one of the section that lacks it.
        """
        line, override = self.origin(path)
        value = self.at(path)
        if value is self.ABSENT or isinstance(value, dict | tuple):
            text = None
        else:
            text = yaml_words(value)
        return InventoryProblem(
            self.file, self.key(path), problem, remedy, line=line, value=text, override=override
        )


def _replaced(tree: Any, path: KeyPath, value: Any) -> Any:
    if not path:
        return value
    head = path[0]
    rest = path[1:]
    if isinstance(tree, tuple):
        return tuple(
            _replaced(item, rest, value) if index == head else item
            for index, item in enumerate(tree)
        )
    if isinstance(tree, dict):
        section = tree
    else:
        section = {}
    return {**section, head: _replaced(section.get(head), rest, value)}


AnySection = TypeVar("AnySection", bound=Section)
_ROUNDS = 4
"""Removing a wrong value may reveal another; after this many rounds the section counts as
unreadable."""


@dataclass(frozen=True)
class ReadableSections:
    """The readable sections.

    Nodes carry their index in the file; `complete` is False when a role may be missing.
    """

    nodes: tuple[tuple[int, Node], ...]
    node_count: int
    ports: Ports
    storage: Storage | None
    monitor: Monitor
    service: Service
    interface: str | None
    local: bool
    allow_public: bool
    page: Page
    complete: bool


def readable_sections(sources: Sources) -> ReadableSections:
    """Read each section on its own. Problems are not reported here: the schema names them."""
    top = sources.value
    written = top.get("nodes")
    if isinstance(written, tuple):
        items: tuple[Any, ...] = written
    else:
        items = ()
    read = [_readable(Node, item, ("nodes", index)) for index, item in enumerate(items)]
    kinds: dict[str, type[Section]] = {
        "ports": Ports,
        "monitor": Monitor,
        "service": Service,
        "page": Page,
    }
    sections: dict[str, Any] = {
        name: _readable(kind, top.get(name), (name,))[0] or kind() for name, kind in kinds.items()
    }
    storage = None
    if top.get("storage") is not None:
        storage = _readable(Storage, top["storage"], ("storage",))[0]
    interface = top.get("interface")
    return ReadableSections(
        nodes=tuple((index, node) for index, (node, _) in enumerate(read) if node is not None),
        node_count=len(items),
        storage=storage,
        **sections,
        interface=interface if isinstance(interface, str) else None,
        local=top.get("connection", "local") == "local",
        allow_public=top.get("allow_public") is True,
        complete=bool(read) and all(whole for _, whole in read),
    )


def _readable(
    section: type[AnySection], value: Any, prefix: tuple[str | int, ...]
) -> tuple[AnySection | None, bool]:
    """The section without its wrong values, and whether nothing of its roles had to go."""
    whole = True
    for _ in range(_ROUNDS):
        try:
            return section.model_validate(value), whole
        except ValidationError as error:
            details = error.errors(include_url=False, include_input=False, include_context=False)
            paths = [plain_path((*prefix, *detail["loc"]))[len(prefix) :] for detail in details]
            whole = whole and all(path[:1] != ("roles",) for path in paths)
            value = _without(value, paths)
    return None, False


def _without(value: Any, paths: Collection[tuple[str | int, ...]]) -> Any:
    """Return `value` without what lies at `paths`.

    All go at once, because a copy for each takes minutes where there are many.
    """
    if not isinstance(value, dict | tuple):
        return value
    below: dict[str | int, list[tuple[str | int, ...]]] = {}
    for path in filter(None, paths):
        below.setdefault(path[0], []).append(path[1:])

    def pruned(key: Any, item: Any) -> list[Any]:
        rest = below.get(key)
        if rest is None:
            return [item]
        if () in rest or not isinstance(item, dict | tuple):
            return []
        return [_without(item, rest)]

    if isinstance(value, dict):
        return {key: remainder for key, item in value.items() for remainder in pruned(key, item)}
    return tuple(
        remainder for position, item in enumerate(value) for remainder in pruned(position, item)
    )


_EXPLANATIONS = Path(__file__).with_name("explanations.yaml")


@cache
def _tables() -> dict[str, dict[str, tuple[str, str]]]:
    """Return the tables of the file: most inventories need none of its words."""
    tables: dict[str, dict[str, tuple[str, str]]] = parse(
        _EXPLANATIONS.read_text(encoding="utf-8"), _EXPLANATIONS.name
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
    problem, remedy = words_of_finding(detail, location, value)
    return sources.problem(path, problem, remedy)


def _choice(kind: str, expected: str, value: object) -> tuple[str, str]:
    choices = expected.replace("'", "").replace(" or ", ", ").split(", ")
    if isinstance(value, str):
        remedy = suggestion(value, choices)
    else:
        remedy = None
    return f"unknown {kind}, expected {expected}", remedy or "write one of them"


def words_of_finding(
    detail: ErrorDetails, location: tuple[str | int, ...], value: object
) -> tuple[str, str]:
    """What pydantic found in the `value` at a location, in our words, and the remedy."""
    kind = detail["type"]
    context = detail.get("ctx", {})
    message = detail["msg"]
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
