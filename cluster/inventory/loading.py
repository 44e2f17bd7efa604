"""From a file and the overrides of a call to an `Inventory`, or to all of its problems at once."""

import os
import stat
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from cluster.inventory.addresses import is_address
from cluster.inventory.consistency import check
from cluster.inventory.explain import explain
from cluster.inventory.machine import Machine, this_machine
from cluster.inventory.nodes import Node
from cluster.inventory.overrides import apply
from cluster.inventory.problem import InventoryError, Problem, printable
from cluster.inventory.salvage import salvage
from cluster.inventory.schema import Description, Inventory
from cluster.inventory.sources import Sources
from cluster.inventory.yaml_document import parse

MAXIMUM_BYTES = 128 * 1024
"""A thousand nodes fit; a file beyond it is not an inventory."""


def load(
    path: str | os.PathLike[str],
    overrides: Sequence[str] = (),
    *,
    check_interfaces: bool = True,
    machine: Machine | None = None,
) -> Inventory:
    """Read, override and validate an inventory.

    `check_interfaces=False` asks nothing of this machine: host names stay unresolved, and a node that names only an
    interface keeps no address. Raises InventoryError with every problem of the file and of the overrides.
    """
    file = printable(os.fspath(path))
    text = _read(Path(path), file)
    return loads(
        text, file, overrides, path=Path(path), machine=(machine or this_machine()) if check_interfaces else None
    )


def loads(text: str, file: str, overrides: Sequence[str], *, path: Path, machine: Machine | None) -> Inventory:
    """The same for text already read; without a machine, nothing is asked of one."""
    document = parse(text, file)
    if document.value is None:
        raise InventoryError(document.problems or [Problem(file, "", "empty", "write one with `fab init --local`")])
    if not isinstance(document.value, dict):
        problem = Problem(file, "", "expected keys such as `cluster:` and `nodes:`", "see docs/inventory.md", line=1)
        raise InventoryError([*document.problems, problem])
    sources = Sources(file, document.value, document.lines)
    problems = [*document.problems, *apply(overrides, sources)]
    description: Description | None = None
    try:
        description = Description.model_validate(sources.value)
    except ValidationError as error:
        problems += explain(error, sources)
    hosts: Mapping[str, str]
    hosts, found = check(salvage(sources), sources, machine)
    problems += found
    if problems or description is None:
        raise InventoryError(problems)
    return _inventory(description, path, hosts)


def located(inventory: Inventory, machine: Machine) -> Inventory:
    """An inventory that was loaded without asking `machine`, with the addresses it knows: nothing is held against it.

    A host name that has no address now stays one, and a node that names an interface nobody has is known by its name.
    """

    def address(node: Node) -> str:
        host = inventory.hosts.get(node.name)
        if host is None:
            return next(iter(machine.interfaces().get(node.interface or inventory.interface or "", ())), node.name)
        return host if is_address(host) else machine.resolve(host) or host

    # Names that nobody answers for take seconds each.
    with ThreadPoolExecutor(max_workers=16) as pool:
        found = pool.map(address, inventory.nodes)
    hosts = {node.name: host for node, host in zip(inventory.nodes, found, strict=True)}
    return _inventory(inventory, inventory.path, hosts)


def _inventory(description: Description, path: Path, hosts: Mapping[str, str]) -> Inventory:
    fields: dict[str, Any] = {
        field.alias or name: getattr(description, name) for name, field in Description.model_fields.items()
    }
    return Inventory(**fields, path=path, hosts=dict(hosts))


def _read(path: Path, file: str) -> str:
    def problem(what: str, remedy: str, line: int | None = None) -> InventoryError:
        return InventoryError([Problem(file, "", what, remedy, line=line)])

    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise problem("a folder, not a file", f"name the file in it, e.g. {file.rstrip('/')}/inventory.yaml")
        if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait for ever
            raise problem("not an ordinary file", "write the inventory into a file")
        with path.open("rb") as stream:
            content = stream.read(MAXIMUM_BYTES + 1)  # files of /proc have a size of 0 and any content
    except FileNotFoundError:
        raise problem("no such file", "name one with --inventory, or write one with `fab init --local`") from None
    except OSError as error:
        raise problem(f"cannot be read: {error.strerror}", "check the path and its permissions") from error
    except ValueError as error:  # a NUL byte in the path
        raise problem(f"not a path: {error}", "correct the path") from error
    if len(content) > MAXIMUM_BYTES:
        raise problem(f"longer than {MAXIMUM_BYTES} bytes", "name an inventory: this is another kind of file")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise problem(
            f"not UTF-8 at byte {error.start} (0x{content[error.start]:02x})", "save the file as UTF-8", line
        ) from None
