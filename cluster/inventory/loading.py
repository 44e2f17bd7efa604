"""From a file and the `--set key=value` of a call to an `Inventory`, or to all of its problems at once."""

import os
import stat
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from cluster.inventory.consistency import Machine, check, is_address, this_machine
from cluster.inventory.nodes import Node
from cluster.inventory.problem import LISTED_PROBLEMS, InventoryError, InventoryProblem, printable, suggestion
from cluster.inventory.recipes import SECTION_NAMES
from cluster.inventory.schema import Description, Inventory
from cluster.inventory.schema_keys import advice, is_misspelt, plain_path, section_at
from cluster.inventory.sources import Sources, readable_parts
from cluster.inventory.yaml_document import MAXIMUM_DEPTH, KeyPath, parse

_REMEDY = "write it like jobs.train.epochs=3 or nodes.rpi03.address=192.168.1.18"


@dataclass(frozen=True)
class _Override:
    argument: str
    key: str
    parts: tuple[str, ...]
    value: Any

    @property
    def names_a_variant(self) -> bool:
        """Whether it says which model, optimizer or schedule, rather than one of its knobs."""
        where, section, last = self.parts[:2], self.parts[2:3], self.parts[3:]
        return where == ("jobs", "train") and section[:1] != () and section[0] in SECTION_NAMES and last == ("name",)


class _OverrideError(Exception):
    """Problem and remedy, in that order."""


def apply(arguments: Sequence[str], sources: Sources) -> list[InventoryProblem]:
    """Replace values in `sources`; later overrides win. Returns the problems of those that cannot be applied.

    A new `name` for a model, an optimizer or a schedule drops the options in the file for the old one, at any position
    among the overrides: an inventory for one network can be tried with another.
    """
    problems: list[InventoryProblem] = []
    overrides: list[_Override] = []
    for argument in arguments:
        key, equals, text = argument.partition("=")
        parts = tuple(part.strip() for part in key.split("."))
        document = parse(text, sources.file)
        if not equals or not all(parts) or not key.isprintable() or len(parts) > MAXIMUM_DEPTH:
            problems.append(InventoryProblem(sources.file, "", "expected KEY=VALUE", _REMEDY, override=argument))
        elif document.problems:
            what = document.problems[0].problem
            problems.append(InventoryProblem(sources.file, key, what, "put the value in quotes", override=argument))
        else:
            overrides.append(_Override(argument, key, parts, document.value))
    for override in sorted(overrides, key=lambda override: not override.names_a_variant):
        try:
            path = _place(override, sources)
        except _OverrideError as error:
            problem, remedy = error.args
            problems.append(InventoryProblem(sources.file, override.key, problem, remedy, override=override.argument))
            continue
        if override.names_a_variant and sources.at(path) != override.value:
            sources.replace(path[:-1], {}, override.argument)
        sources.replace(path, override.value, override.argument)
    return problems


def _place(override: _Override, sources: Sources) -> KeyPath:
    """The path the override means, with nodes named instead of counted."""
    path: KeyPath = ()
    for part in override.parts:
        holder = sources.at(path)
        if isinstance(holder, tuple):
            path = (*path, _position(part, holder, sources.key(path)))
        elif isinstance(holder, dict) or holder is None or holder is sources.ABSENT:
            path = (*path, part)
        else:
            where = sources.key(path)
            raise _OverrideError(f"{where} is a value and has no key {part!r}", f"write {where}=VALUE")
    return path


def _position(part: str, items: tuple[Any, ...], where: str) -> int:
    names = [item.get("name") if isinstance(item, dict) else None for item in items]
    if part in names:
        return names.index(part)
    if part.isascii() and part.isdigit() and len(part) < 6 and int(part) < len(items):
        return int(part)
    words = [name for name in names if isinstance(name, str)]
    choices = ", ".join(words) if words else f"0 to {len(items) - 1}"
    remedy = suggestion(part, words) or f"choose one of {choices}"
    raise _OverrideError(f"nothing is called {part!r} in {where}", remedy)


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

    With `check_interfaces=False` host names stay unresolved, and a node that names only an interface has no address.
    Raises InventoryError with every problem of the file and of the overrides.
    """
    file = printable(os.fspath(path))
    text = _read(Path(path), file)
    return loads(
        text, file, overrides, path=Path(path), machine=(machine or this_machine()) if check_interfaces else None
    )


def loads(text: str, file: str, overrides: Sequence[str], *, path: Path, machine: Machine | None) -> Inventory:
    """The same for text already read; without a machine, host names and interfaces stay unresolved."""
    document = parse(text, file)
    if document.value is None:
        raise InventoryError(
            document.problems or [InventoryProblem(file, "", "empty", "write one with `fab init --local`")]
        )
    if not isinstance(document.value, dict):
        problem = InventoryProblem(
            file, "", "expected keys such as `cluster:` and `nodes:`", "see docs/inventory.md", line=1
        )
        raise InventoryError([*document.problems, problem])
    sources = Sources(file, document.value, document.lines)
    problems = [*document.problems, *apply(overrides, sources)]
    description: Description | None = None
    try:
        description = Description.model_validate(sources.value)
    except ValidationError as error:
        problems += explain(error, sources)
    hosts: Mapping[str, str]
    hosts, found = check(readable_parts(sources), sources, machine)
    problems += found
    if problems or description is None:
        raise InventoryError(problems)
    return _inventory(description, path, hosts)


def located(inventory: Inventory, machine: Machine) -> Inventory:
    """An inventory that was loaded without a machine, with the addresses that `machine` knows. Never fails.

    A host name without an address stays a name; a node whose interface does not exist is addressed by its name.
    """

    def address(node: Node) -> str:
        host = inventory.hosts.get(node.name)
        if host is None:
            return next(iter(machine.interfaces().get(node.interface or inventory.interface or "", ())), node.name)
        return host if is_address(host) else machine.resolve(host) or host

    # An unknown name takes seconds.
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
        return InventoryError([InventoryProblem(file, "", what, remedy, line=line)])

    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise problem("a folder, not a file", f"name the file in it, e.g. {file.rstrip('/')}/inventory.yaml")
        if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait without an end
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


_TYPES: Mapping[str, tuple[str, str]] = {
    "int_type": ("expected a whole number", "write it without quotes and decimal point"),
    "float_type": ("expected a number", "write e.g. 0.002 or 2e-3, without quotes"),
    "finite_number": ("expected a finite number", "write an ordinary number"),
    "string_type": ("expected text", "put it in quotes"),
    "string_unicode": ("expected text", "remove the characters that are no Unicode"),
    "bool_type": ("expected true or false", "write true or false, without quotes"),
    "tuple_type": ("expected a list", "write every entry on a line of its own behind `- `"),
    **dict.fromkeys(
        ("model_type", "model_attributes_type", "dict_type"),
        ("expected a section with keys", "write its keys below it, indented"),
    ),
}

_BOUNDS: Mapping[str, tuple[str, str]] = {
    "greater_than": ("gt", "a number above"),
    "greater_than_equal": ("ge", "a number of at least"),
    "less_than": ("lt", "a number below"),
    "less_than_equal": ("le", "a number of at most"),
    "string_too_long": ("max_length", "text with a length of at most"),
    "string_too_short": ("min_length", "text with a length of at least"),
}

_PATTERNS: Mapping[str, tuple[str, str]] = {
    "name": ("not a name", "use letters, digits, `-` and `_`, at most 63, a letter or digit first and last"),
    "cluster": ("not a name", "use letters, digits, `-` and `_`, at most 63, a letter or digit first and last"),
    "server": ("not a node's name", "write the name of the node with the role storage"),
    "interface": ("not the name of a network interface", "write a name that `ip link` shows, e.g. eth0"),
    "export": ("not an absolute path of letters, digits, . _ + @ ~ and -", "write e.g. /srv/pscluster"),
    "mount": ("not an absolute path of letters, digits, . _ + @ ~ and -", "write e.g. /mnt/pscluster"),
    "user": ("not a Linux account", "write e.g. pi"),
}


def explain(error: ValidationError, sources: Sources) -> list[InventoryProblem]:
    """One problem for each of pydantic's findings; the first `LISTED_PROBLEMS` in the file have a remedy."""
    details = error.errors(include_url=False, include_input=False)
    found = [detail for detail in details if not _is_consequence(detail, sources)]
    found.sort(key=lambda detail: sources.origin(plain_path(detail["loc"]))[0] or 0)
    shown, counted = found[:LISTED_PROBLEMS], found[LISTED_PROBLEMS:]
    rest = (sources.problem(plain_path(detail["loc"]), detail["msg"], "see docs/inventory.md") for detail in counted)
    return [*(_explain(detail, sources) for detail in shown), *rest]


def _is_consequence(detail: ErrorDetails, sources: Sources) -> bool:
    """A key missing because it is misspelt, or a list called empty because its entries are wrong."""
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
    remedy = suggestion(value, choices) if isinstance(value, str) else None
    return f"unknown {kind}, expected {expected}", remedy or "write one of them"


def _words(
    kind: str, context: Mapping[str, Any], message: str, location: tuple[str | int, ...], value: object
) -> tuple[str, str]:
    key = str(location[-1]) if location else ""
    if "remedy" in context:
        return message, str(context["remedy"])
    if kind == "extra_forbidden":
        what = "unknown role" if location[-3:-2] == ("roles",) else "unknown key"
        return what, advice(key, section_at(location[:-1]))
    if kind == "missing":
        return "missing", f"add `{key}:`"
    if kind == "int_type" and isinstance(value, float) and value.is_integer():
        return "expected a whole number", f"write {value:.0f}"
    if kind in _TYPES:
        return _TYPES[kind]
    if kind in _BOUNDS:
        name, words = _BOUNDS[kind]
        return "out of range", f"write {words} {context[name]}"
    if kind in ("literal_error", "union_tag_invalid"):
        word = str(location[-2]) if key == "name" else key
        return _choice(word, str(context.get("expected") or context.get("expected_tags")), value)
    if kind == "too_short":
        return f"expected at least {context['min_length']} in the list", "add an entry"
    if kind == "too_long":
        return f"expected at most {context['max_length']} in the list", "remove entries"
    if kind == "string_pattern_mismatch":
        return _PATTERNS.get(key, ("not usable here", "remove blanks and control characters"))
    return message, "see docs/inventory.md"
