"""Values that reach a shell without `quoted`, in f-strings of the sources and in the files of
scripts."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

QUOTING = "quoted"
"""`deploy.common.command_line.quoted`: the one function."""

_COMMANDS = (
    "awk|base64|cat|cd|chmod|chown|cp|cut|df|exec|find|grep|head|journalctl|ls|mkdir|mv|nft|printf"
    "|python3?"
    "|rm|sed|sh|stat|sudo|sync|systemctl|tail|tar|test|timeout|touch|wc"
)
_SHELL = re.compile(
    rf"\$\(|&&|\|\||2>|>&2|>/dev/null|; (do|then|else|exit)\b|\bsh -c |\|"
    rf" (sort|xargs|awk|head|tail|grep)\b"
    rf"|(?:^|\n)\s*(?:{_COMMANDS}) [^.]*(?:-|\Z|/|')"
)
_NUMBER = re.compile(r"[#0 +-]*\d*,?(\.\d+)?[dofgx]")


@dataclass(frozen=True)
class Unquoted:
    """A value in a shell command, and where."""

    place: str
    value: str


def unquoted(path: str, text: str) -> Iterator[Unquoted]:
    """Values of f-strings that look like shell, except constants, numbers and quoted values."""
    tree = ast.parse(text)
    inner: set[ast.AST] = set()
    owner: dict[ast.AST, ast.AST] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FormattedValue):
            inner.update(ast.walk(node))
        if isinstance(node, ast.FunctionDef):
            owner |= dict.fromkeys(ast.walk(node), node)
        if isinstance(node, ast.JoinedStr) and node not in inner and _looks_like_shell(node):
            safe = _Safe(given(tree) | given(owner.get(node, tree)))
            for value in node.values:
                if isinstance(value, ast.FormattedValue) and not safe.is_safe(value):
                    yield Unquoted(f"{path}:{value.lineno}", ast.unparse(value.value))


_PARTS = re.compile(
    r"""(?P<comment>(?<!\S)\#)|\\.|\{\{(?P<value>[^}]*)\}\}|(?P<mark>\$?\(|[)'"\n])""",
)


def names_within_quotes(script: str) -> Iterator[str]:
    """Values `{{ NAME }}` of a script's file that stand between quotes; within `$(...)` quoting
    begins again."""
    inside = ["script"]
    comment = False
    for part in _PARTS.finditer(script):
        here = inside[-1]
        mark = part["mark"] or ""
        if comment or (part["comment"] and here not in ("'", '"')):
            comment = mark != "\n"
        elif part["value"] is not None and here in ("'", '"'):
            yield part["value"].strip()
        elif mark == here or (mark == ")" and here == "("):
            inside.pop()
        elif (mark == "$(" and here != "'") or (mark == "(" and here not in ("'", '"')):
            inside.append("(")
        elif mark in ("'", '"') and here not in ("'", '"'):
            inside.append(mark)


def commands_as_text(path: str, text: str) -> Iterator[str]:
    """Calls of `run` and `stream` whose command is one string instead of a list of words."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            first = node.args[0]
            is_text = isinstance(first, ast.JoinedStr) or (
                isinstance(first, ast.Constant) and type(first.value) is str
            )
            if node.func.attr in ("run", "stream") and is_text:
                yield f"{path}:{node.lineno}"


def _looks_like_shell(node: ast.JoinedStr) -> bool:
    text = "".join(
        str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values
    )
    # A message names commands between backquotes; no script of ours has any.
    return "`" not in text and _SHELL.search(text) is not None


Given: TypeAlias = dict[str, list[ast.expr | None]]


@cache
def given(tree: ast.AST) -> Given:
    """The values that are given to each name there, and those that a `function()` returns."""
    found: Given = defaultdict(list)

    def give(target: ast.expr, value: ast.expr) -> None:
        match target, value:
            case ast.Name(id=name) | ast.Attribute(attr=name), _:
                found[name].append(value)
            case ast.Tuple(elts=targets), ast.Tuple(elts=values):
                for one, each in zip(targets, values, strict=True):
                    give(one, each)

    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[target], value=value):
                give(target, value)
            case ast.AugAssign(target=target, value=value):
                give(target, value)
            case ast.FunctionDef(name=name):
                returned = [one for one in ast.walk(node) if isinstance(one, ast.Return)]
                found[f"{name}()"] += [one.value for one in returned]
    return found


class _Safe:
    """Decides about values by what the names of a module, or of the function, are given."""

    def __init__(self, names: Given) -> None:
        self._given = names
        self._seen: set[str] = set()

    def is_safe(self, value: ast.expr | None) -> bool:
        """Whether it is a constant of ours, a number, quoted, or made of such."""
        match value:
            case ast.FormattedValue(
                format_spec=ast.JoinedStr(values=[ast.Constant(str(spec))])
            ) if _NUMBER.fullmatch(spec):
                return True
            case ast.FormattedValue(value=inner):
                return self.is_safe(inner)
            case ast.Constant():
                return True
            case ast.JoinedStr(values=parts):
                return all(map(self.is_safe, parts))
            case ast.BinOp(left=left, right=right) | ast.IfExp(body=left, orelse=right):
                return self.is_safe(left) and self.is_safe(right)
            case ast.Call(func=ast.Name(id=name)):
                return name == QUOTING or self._always_safe(f"{name}()")
            case ast.Call(
                func=ast.Attribute(value=ast.Constant(), attr="join"),
                args=[ast.GeneratorExp(elt=element)],
            ):
                return self.is_safe(element)
            case ast.Name(id=name) | ast.Attribute(attr=name):
                return name.strip("_").isupper() or self._always_safe(name)
        return False

    def _always_safe(self, name: str) -> bool:
        if name in self._seen:
            return True
        self._seen.add(name)
        found = self._given.get(name, [])
        return bool(found) and all(map(self.is_safe, found))
