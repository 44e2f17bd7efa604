"""From a file and the `--set key=value` of a call, in place of its values, to an `Inventory`.

Where that fails, all problems come at once.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from core.documents import (
    InventoryError,
    InventoryProblem,
    printable,
    suggestion,
)
from core.documents.yaml_document import MAXIMUM_DEPTH, KeyPath, parse, read_document
from core.inventory.addresses import Machine, is_address, this_machine
from core.inventory.consistency import check, inner, tunnel_problems
from core.inventory.nodes import Node
from core.inventory.schema import Inventory, InventoryFile
from core.inventory.sources import Sources, explain, readable_sections
from core.inventory.training_sections import SECTION_NAMES

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


def load(
    path: str | os.PathLike[str],
    overrides: Sequence[str] = (),
    *,
    check_interfaces: bool = True,
    machine: Machine | None = None,
) -> Inventory:
    """Read, override and validate an inventory.

    With `check_interfaces=False` host names stay unresolved, and a node that names only an
    interface has no address. Raises InventoryError with every problem of the file and of the
    overrides.
    """
    file = printable(os.fspath(path))
    text = _read(Path(path), file)
    return loads(
        text,
        file,
        overrides,
        path=Path(path),
        machine=(machine or this_machine()) if check_interfaces else None,
    )


def loads(
    text: str, file: str, overrides: Sequence[str], *, path: Path, machine: Machine | None
) -> Inventory:
    """Load an inventory from a text that is already read.

    Without a machine, host names and interfaces stay unresolved.
    """
    document = parse(text, file)
    if document.value is None:
        raise InventoryError(
            document.problems
            or [InventoryProblem(file, "", "empty", "write one with `fab init --local`")]
        )
    if not isinstance(document.value, dict):
        problem = InventoryProblem(
            file,
            "",
            "expected keys such as `cluster:` and `nodes:`",
            "see docs/inventory.md",
            line=1,
        )
        raise InventoryError([*document.problems, problem])
    sources = Sources(file, document.value, document.lines)
    problems = [*document.problems, *apply(overrides, sources)]
    description: InventoryFile | None = None
    try:
        description = InventoryFile.model_validate(sources.value)
    except ValidationError as error:
        problems += explain(error, sources)
    links: Mapping[str, str]
    links, inconsistencies = check(readable_sections(sources), sources, machine)
    problems += inconsistencies
    if description is not None and description.transport == "wireguard":
        problems += tunnel_problems(description.wireguard, links, sources)
    if problems or description is None:
        raise InventoryError(problems)
    return _inventory(description, path, links)


def located(inventory: Inventory, machine: Machine) -> Inventory:
    """An inventory that was loaded without a machine, with the addresses that `machine` knows.

    Never fails.

    A host name without an address stays a name; a node whose interface does not exist is addressed
    by its name.
    """

    def address(node: Node) -> str:
        host = inventory.links.get(node.name)
        if host is None:
            return next(
                iter(machine.interfaces().get(node.interface or inventory.interface or "", ())),
                node.name,
            )
        if is_address(host) or not (inventory.one_host or machine.resolves_nodes):
            return host
        return machine.resolve(host) or host

    # An unknown name takes seconds.
    with ThreadPoolExecutor(max_workers=16) as pool:
        addresses = pool.map(address, inventory.nodes)
    links = {node.name: link for node, link in zip(inventory.nodes, addresses, strict=True)}
    return _inventory(inventory, inventory.path, links)


def addressed(
    inventory: Inventory, links: Mapping[str, str], unproven: Collection[str]
) -> Inventory:
    """Return the inventory whose nodes announce these addresses."""
    placed = _inventory(inventory, inventory.path, links)
    return placed.model_copy(update={"unproven": frozenset(unproven)})


def _inventory(description: InventoryFile, path: Path, links: Mapping[str, str]) -> Inventory:
    if description.transport == "wireguard":
        hosts = inner(links, description.wireguard.subnet)
    else:
        hosts = dict(links)
    fields: dict[str, Any] = {
        field.alias or name: getattr(description, name)
        for name, field in InventoryFile.model_fields.items()
    }
    return Inventory(**fields, path=path, hosts=hosts, links=dict(links))


def _read(path: Path, file: str) -> str:
    if os.path.isdir(path):
        remedy = f"name the file in it, e.g. {file.rstrip('/')}/inventory.yaml"
        raise InventoryError([InventoryProblem(file, "", "a folder, not a file", remedy)])
    otherwise = "name one with --inventory, or write one with `fab init --local`"
    return read_document(path, file, "an inventory", otherwise)
