"""What can be read of an inventory that has problems, so that the checks across nodes still run on the rest."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError

from cluster.inventory.deployment import Storage
from cluster.inventory.fields import Section
from cluster.inventory.monitor import Monitor
from cluster.inventory.nodes import Node, Page, Ports
from cluster.inventory.schema_keys import plain_path
from cluster.inventory.sources import Sources

AnySection = TypeVar("AnySection", bound=Section)
_ROUNDS = 4
"""Removing a wrong value may bring up the next check; after so many rounds the section is given up."""


@dataclass(frozen=True)
class Parts:
    """The readable parts. Nodes carry their index in the file; `complete` is False when a role may be missing."""

    nodes: tuple[tuple[int, Node], ...]
    node_count: int
    ports: Ports
    storage: Storage | None
    monitor: Monitor
    interface: str | None
    local: bool
    allow_public: bool
    page: bool
    complete: bool


def salvage(sources: Sources) -> Parts:
    """Read each part on its own. Problems are not reported here: the schema has already named them."""
    top = sources.value
    written = top.get("nodes")
    items: tuple[Any, ...] = written if isinstance(written, tuple) else ()
    nodes: list[tuple[int, Node]] = []
    complete = bool(items)
    for index, item in enumerate(items):
        node, whole = _readable(Node, item, ("nodes", index))
        complete = complete and whole and node is not None
        if node is not None:
            nodes.append((index, node))
    ports, _ = _readable(Ports, top.get("ports"), ("ports",))
    storage = None if top.get("storage") is None else _readable(Storage, top["storage"], ("storage",))[0]
    monitor, _ = _readable(Monitor, top.get("monitor"), ("monitor",))
    page, _ = _readable(Page, top.get("page", {}), ("page",))
    interface = top.get("interface")
    return Parts(
        nodes=tuple(nodes),
        node_count=len(items),
        ports=ports or Ports(),
        storage=storage,
        monitor=monitor or Monitor(),
        interface=interface if isinstance(interface, str) else None,
        local=top.get("connection", "local") == "local",
        allow_public=top.get("allow_public") is True,
        page=page is None or page.listen != "off",
        complete=complete,
    )


def _readable(section: type[AnySection], value: Any, prefix: tuple[str | int, ...]) -> tuple[AnySection | None, bool]:
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
    """`value` without what lies at `paths`; all at once, because a copy for each takes minutes where there are many."""
    if not isinstance(value, dict | tuple):
        return value
    below: dict[str | int, list[tuple[str | int, ...]]] = {}
    for path in filter(None, paths):
        below.setdefault(path[0], []).append(path[1:])

    def kept(key: Any, item: Any) -> list[Any]:
        rest = below.get(key)
        if rest is None:
            return [item]
        return [] if () in rest or not isinstance(item, dict | tuple) else [_without(item, rest)]

    if isinstance(value, dict):
        return {key: one for key, item in value.items() for one in kept(key, item)}
    return tuple(one for position, item in enumerate(value) for one in kept(position, item))
