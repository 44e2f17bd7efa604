"""Values that reach a shell without `quoted`, in f-strings of the sources and in the files of scripts."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

QUOTING = "quoted"
"""`deploy.common.command_line.quoted`: the one function."""

_COMMANDS = (
    "awk|base64|cat|cd|chmod|chown|cp|cut|df|exec|find|grep|head|journalctl|ls|mkdir|mv|nft|printf|python3?"
    "|rm|sed|sh|stat|sudo|sync|systemctl|tail|tar|test|timeout|touch|wc"
)
_SHELL = re.compile(
    rf"\$\(|&&|\|\||2>|>&2|>/dev/null|; (do|then|else|exit)\b|\bsh -c |\| (sort|xargs|awk|head|tail|grep)\b"
    rf"|(?:^|\n)\s*(?:{_COMMANDS}) [^.]*(?:-|\Z|/|')"
)
_NUMBER = re.compile(r"[#0 +-]*\d*,?(\.\d+)?[dofgx]")


@dataclass(frozen=True)
class Unquoted:
    """A value in a shell command, and where."""

    place: str
    value: str


def unquoted(path: Path, text: str) -> Iterator[Unquoted]:
    """Values of f-strings that look like shell, except constants, numbers and quoted values."""
    tree = ast.parse(text)
    parents = {child: parent for parent in ast.walk(tree) for child in ast.iter_child_nodes(parent)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr) and not _is_part(node, parents) and _looks_like_shell(_whole(node)):
            scope = _Scope(node, parents, tree)
            for value in node.values:
                if isinstance(value, ast.FormattedValue) and not scope.is_safe(value):
                    yield Unquoted(f"{path}:{value.lineno}", ast.unparse(value.value))


_PARTS = re.compile(
    r"""(?P<comment>(?<!\S)\#)|\\.|\{\{(?P<value>[^}]*)\}\}|(?P<mark>\$?\(|[)'"\n])""",
)


def names_within_quotes(script: str) -> Iterator[str]:
    """Values `{{ NAME }}` of a script's file that stand between quotes; within `$(...)` quoting begins again."""
    inside, comment = ["script"], False
    for part in _PARTS.finditer(script):
        here, mark = inside[-1], part["mark"] or ""
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


def commands_as_text(path: Path, text: str) -> Iterator[str]:
    """Calls of `run` and `stream` whose command is one string instead of a list of words."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            first = node.args[0]
            is_text = isinstance(first, ast.JoinedStr) or (isinstance(first, ast.Constant) and type(first.value) is str)
            if node.func.attr in ("run", "stream") and is_text:
                yield f"{path}:{node.lineno}"


def _is_part(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
    """Whether it is a format specification, or inside of another value."""
    return isinstance(parents.get(node), ast.FormattedValue)


def _whole(node: ast.JoinedStr) -> str:
    """The text with {} for values."""
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)


def _looks_like_shell(text: str) -> bool:
    # A message names commands between backquotes; no script of ours has any.
    return "`" not in text and _SHELL.search(text) is not None


class _Scope:
    """Names as the function, or the class, around a string has them."""

    def __init__(self, node: ast.AST, parents: dict[ast.AST, ast.AST], tree: ast.Module) -> None:
        self._tree = tree
        self._function: ast.AST = tree
        at: ast.AST | None = node
        while at is not None and self._function is tree:
            if isinstance(at, ast.FunctionDef):
                self._function = at
            at = parents.get(at)
        self._seen: set[tuple[str, ast.AST]] = set()

    def is_safe(self, value: ast.expr) -> bool:
        """Whether it is a constant of ours, a number, quoted, or made of such."""
        match value:
            case ast.FormattedValue(value=inner, format_spec=ast.JoinedStr(values=[ast.Constant(value=str(spec))])):
                return _NUMBER.fullmatch(spec) is not None or self.is_safe(inner)
            case ast.FormattedValue(value=inner):
                return self.is_safe(inner)
            case ast.Constant():
                return True
            case ast.JoinedStr(values=parts):
                return all(map(self.is_safe, parts))
            case ast.BinOp(left=left, right=right):
                return self.is_safe(left) and self.is_safe(right)
            case ast.IfExp(body=body, orelse=other):
                return self.is_safe(body) and self.is_safe(other)
            case ast.Call(func=ast.Name(id=name)):
                return name == QUOTING or self._returns_safe(name)
            case ast.Call(func=ast.Attribute(value=ast.Constant(), attr="join"), args=[ast.GeneratorExp(elt=element)]):
                return self.is_safe(element)
            case ast.Name(id=name):
                return name.strip("_").isupper() or any(
                    self._assigned_safe(name, where) for where in dict.fromkeys((self._function, self._tree))
                )
            case ast.Attribute(attr=name):
                return name.strip("_").isupper() or self._assigned_safe(name, self._tree)
        return False

    def _assigned_safe(self, name: str, where: ast.AST) -> bool:
        """Whether all values assigned to this name there are safe."""
        if (name, where) in self._seen:
            return True
        self._seen.add((name, where))
        found: list[ast.expr | None] = []
        for node in ast.walk(where):
            match node:
                case ast.Assign(targets=[target], value=value):
                    found += _values(target, value, name)
                case ast.AugAssign(target=target, value=value):
                    found += _values(target, value, name)
        return bool(found) and all(one is not None and self.is_safe(one) for one in found)

    def _returns_safe(self, name: str) -> bool:
        """Whether a function of this module returns nothing else."""
        for node in self._tree.body:
            if isinstance(node, ast.FunctionDef) and node.name == name:
                returned = [one.value for one in ast.walk(node) if isinstance(one, ast.Return)]
                inner = _Scope(node, {}, self._tree)
                inner._function = node
                arguments = {one.arg for one in node.args.args}
                # Its own values are checked where they are used; the caller has to quote its arguments.
                return all(one is not None and inner._is_made_of(one, arguments) for one in returned)
        return False

    def _is_made_of(self, value: ast.expr, arguments: set[str]) -> bool:
        return isinstance(value, ast.JoinedStr) or self.is_safe(value)


def _values(target: ast.expr, value: ast.expr, name: str) -> list[ast.expr | None]:
    match target:
        case ast.Name(id=found) | ast.Attribute(attr=found) if found == name:
            return [value]
        case ast.Tuple(elts=names):
            wanted = [place for place, one in enumerate(names) if getattr(one, "id", getattr(one, "attr", "")) == name]
            if wanted and isinstance(value, ast.Tuple) and len(value.elts) == len(names):
                return [value.elts[place] for place in wanted]
            return [None for _ in wanted]
    return []
