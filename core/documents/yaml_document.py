"""YAML text to plain values, remembering the line of every key.

All duplicate keys and odd tags are found at once.

Scalars follow the core schema of YAML 1.2, not PyYAML's 1.1: `no` is a word, `2e-3` a number and
`22:22` no time. Nothing is ever constructed but dict, tuple, str, int, float, bool and None.
"""

import re
import stat
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from core.documents import InventoryError, InventoryProblem, yaml_words

KeyPath = tuple[str | int, ...]
"""Keys and list positions from the root of the document to a value."""

MAXIMUM_BYTES = 128 * 1024
"""A thousand nodes fit; a file beyond it is no document of ours."""
MAXIMUM_DEPTH = 24
MAXIMUM_VALUES = 20_000
"""Values of a document once its aliases are followed: nine lines of aliases can stand for
gigabytes."""
MAXIMUM_DIGITS = 40
"""No number of an inventory needs more, and Python refuses to print whole numbers above 4,300
digits."""

_TAG = "tag:yaml.org,2002:"


class _CoreLoader(yaml.SafeLoader):
    """Only its node graph is used, none of its constructors."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012  # PyYAML's protocol


def _resolve(tag: str, pattern: str, first: str) -> None:
    _CoreLoader.add_implicit_resolver(
        _TAG + tag, re.compile(rf"^(?:{pattern})$"), list(first) or [""]
    )


_resolve("null", "~|null|Null|NULL", "~nN")
_resolve("null", "", "")
_resolve("bool", "true|True|TRUE|false|False|FALSE", "tTfF")
_resolve("int", "[-+]?[0-9][0-9_]*|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789")
_resolve("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+.0123456789")
_resolve("float", r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)", "-+.")


@dataclass
class Document:
    """A parsed document.

    `value` is None where nothing usable came out; `problems` then says why.
    """

    file: str
    value: Any = None
    lines: dict[KeyPath, int] = field(default_factory=dict)
    problems: list[InventoryProblem] = field(default_factory=list)
    _values: int = 0

    def _add(self, path: KeyPath, line: int | None, problem: str, remedy: str) -> None:
        key = ".".join(str(part) for part in path)
        self.problems.append(InventoryProblem(self.file, key, problem, remedy, line=line))

    def _build(self, node: yaml.Node, path: KeyPath) -> Any:
        line = node.start_mark.line + 1
        self._values += 1
        if self._values > MAXIMUM_VALUES:
            raise _TooMuchError(line, f"more than {MAXIMUM_VALUES} values")
        if len(path) > MAXIMUM_DEPTH:
            raise _TooMuchError(line, f"nested more than {MAXIMUM_DEPTH} levels deep")
        self.lines.setdefault(path, line)
        if isinstance(node, yaml.CollectionNode) and node.tag not in (f"{_TAG}map", f"{_TAG}seq"):
            self._add(path, line, f"the tag {node.tag!r} is not supported", "remove the tag")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return tuple(
                self._build(item, (*path, position)) for position, item in enumerate(node.value)
            )
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        raise AssertionError(f"a YAML node is a mapping, a sequence or a scalar, not {type(node)}")

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        built: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self._add(path, line, "a list or a mapping cannot be a key", "use a word")
                continue
            key: str = key_node.value
            if key_node.tag != f"{_TAG}str" or not key.isprintable():
                self._add(
                    path,
                    line,
                    f"{yaml_words(key)} cannot be a key",
                    "use a word, or put it in quotes",
                )
            elif key == "<<":
                self._add(path, line, "merge keys are not supported", "write the keys out")
            elif key in built:
                first = self.lines[(*path, key)]
                self._add(
                    (*path, key),
                    line,
                    f"given twice, first on line {first}",
                    "remove one of the two",
                )
            else:
                self.lines[(*path, key)] = line
                built[key] = self._build(value_node, (*path, key))
        return built

    def _scalar(self, node: yaml.ScalarNode, path: KeyPath) -> Any:
        text: str = node.value
        line = node.start_mark.line + 1
        constructor = _CONSTRUCTORS.get(node.tag)
        if constructor is None:
            self._add(path, line, f"the tag {node.tag!r} is not supported", "remove the tag")
            return None
        if node.tag in (f"{_TAG}int", f"{_TAG}float") and len(text) > MAXIMUM_DIGITS:
            self._add(
                path, line, f"a number of {len(text)} characters", f"use at most {MAXIMUM_DIGITS}"
            )
            return None
        try:
            return constructor(text)
        except (ValueError, KeyError):
            self._add(
                path,
                line,
                f"{yaml_words(text)} is no value of the tag {node.tag!r}",
                "remove the tag",
            )
            return None


def read_document(path: Path, file: str, kind: str, otherwise: str) -> str:
    """The text of the file of a document of this `kind`, such as `an inventory`.

    Raises InventoryError, whose remedy is `otherwise` where it is no such file.
    """

    def refusal(problem: str, remedy: str, line: int | None = None) -> InventoryError:
        return InventoryError([InventoryProblem(file, "", problem, remedy, line=line)])

    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would wait without an end
            raise refusal("not an ordinary file", otherwise)
        with path.open("rb") as stream:
            # Files of /proc have a size of 0 and any content.
            content = stream.read(MAXIMUM_BYTES + 1)
    except FileNotFoundError:
        raise refusal("no such file", otherwise) from None
    except OSError as error:
        raise refusal(
            f"cannot be read: {error.strerror}", "check the path and its permissions"
        ) from error
    except ValueError as error:  # a NUL byte in the path
        raise refusal(f"not a path: {error}", "correct the path") from error
    if len(content) > MAXIMUM_BYTES:
        raise refusal(
            f"longer than {MAXIMUM_BYTES} bytes", f"name {kind}: this is another kind of file"
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        what = f"not UTF-8 at byte {error.start} (0x{content[error.start]:02x})"
        raise refusal(what, "save the file as UTF-8", line) from None


def parse(text: str, file: str) -> Document:
    """Parse one document. Never raises: what is wrong is in `problems`."""
    document = Document(file)

    def add(line: int | None, problem: str, remedy: str) -> None:
        document._add((), line, problem, remedy)

    try:
        node = yaml.compose(text, _CoreLoader)
        if node is not None:
            document.value = document._build(node, ())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = " ".join(part for part in (error.context, error.problem) if part)
        add(
            None if mark is None else mark.line + 1,
            f"not valid YAML: {what}",
            _syntax_remedy(text, error),
        )
    except yaml.YAMLError as error:
        add(None, f"not valid YAML: {str(error).splitlines()[0]}", "remove the character")
    except RecursionError:
        add(None, "nested too deeply", f"use at most {MAXIMUM_DEPTH} levels")
    except (
        ValueError,
        OverflowError,
    ) as error:  # an escape such as "\UFFFFFFFF", a %YAML directive of 5,000 digits
        add(None, f"not valid YAML: {error}", "correct the escape or the directive")
    except _TooMuchError as error:
        add(error.line, str(error), "write it without so many values, aliases or levels")
    return document


def _syntax_remedy(text: str, error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark
    lines = text.splitlines()
    if mark is not None and mark.line < len(lines) and "\t" in lines[mark.line]:
        return "indent with blanks, not tabs"
    return "check indentation, colons and quotes on that line and the one before"


class _TooMuchError(Exception):
    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


def _int(text: str) -> int:
    digits = text.replace("_", "")
    if digits[:2].lower() in ("0o", "0x"):
        return int(digits, 0)
    return int(digits)


def _float(text: str) -> float:
    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))


_CONSTRUCTORS: dict[Hashable, Callable[[str], Any]] = {
    f"{_TAG}null": lambda _: None,
    f"{_TAG}bool": lambda text: {"true": True, "false": False}[text.lower()],
    f"{_TAG}int": _int,
    f"{_TAG}float": _float,
    f"{_TAG}str": str,
}
