"""Where each value of an inventory came from.

The parts of an inventory with problems that can be read are found here too.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from core.documents.problem import InventoryProblem, shown
from core.documents.yaml_document import KeyPath
from core.inventory.fields import Section
from core.inventory.nodes import Node, Page, Ports
from core.inventory.schema_keys import plain_path
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
            text = shown(value)
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
