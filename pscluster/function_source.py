"""The source of a function, with what it uses of its module: imports, constants, functions."""

import ast
import builtins
import dis
import inspect
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import FunctionType, ModuleType
from typing import Any, Self

from core.ground.errors import UsageError

CONSTANTS = (bool, int, float, str, bytes, type(None))


@dataclass(frozen=True)
class ModuleCode:
    """Lines and definitions by the names that they bind, in the order they must stand in."""

    imports: dict[str, str] = field(default_factory=dict)
    definitions: dict[str, str] = field(default_factory=dict)

    def merged(self, other: Self) -> "ModuleCode":
        """Both. Raises UsageError where they mean different things by one name."""
        for own, others in ((self.imports, other.imports), (self.definitions, other.definitions)):
            for name in own.keys() & others.keys():
                if own[name] != others[name]:
                    raise UsageError(
                        f"{name}: two of the given functions mean different things by this name"
                    )
        return ModuleCode(self.imports | other.imports, self.definitions | other.definitions)

    def text(self) -> str:
        """Return the code as a file has it."""
        return "\n".join(self.imports.values()) + "\n\n\n" + "\n\n".join(self.definitions.values())


def source_of(function: Callable[..., Any], wanted: str, positional: Sequence[str]) -> ModuleCode:
    """Return the source under the name `wanted`, as a function of `positional`.

    A function that takes nothing is wrapped.

    Raises UsageError: no function, one without a source, or one that needs a value that has none.
    """
    if not isinstance(function, FunctionType) or function.__name__ == "<lambda>":
        raise UsageError(f"{wanted}: expected a function made with `def`, found {function!r:.100}")
    found = _collected(function, wanted, ModuleCode(), set())
    count = len(inspect.signature(function).parameters)
    if count not in (0, len(positional)):
        raise UsageError(
            f"{wanted}: expected a function of {', '.join(positional)} or of nothing, found {count}"
            " parameters"
        )
    name = function.__name__
    if count == 0 and wanted == name:
        inner = {f"_{name}": f"_{name} = {name}"}
        return found.merged(
            ModuleCode(
                {}, {**inner, wanted + "()": _wrapper(wanted, f"_{name}", positional, False)}
            )
        )
    if name != wanted or count == 0:
        return found.merged(
            ModuleCode({}, {wanted: _wrapper(wanted, name, positional, bool(count))})
        )
    return found


def _wrapper(wanted: str, name: str, positional: Sequence[str], passed: bool) -> str:
    given = ", ".join(positional)
    return f"\ndef {wanted}({given}):\n    return {name}({given if passed else ''})\n"


def _collected(
    function: FunctionType, wanted: str, found: ModuleCode, seen: set[str]
) -> ModuleCode:
    seen.add(function.__name__)
    used = inspect.getclosurevars(function)
    if used.nonlocals:
        raise UsageError(
            f"{wanted}: {function.__name__} uses {min(used.nonlocals)!r} of the function around it:"
            " pass it in"
        )
    text = _text(function, wanted)
    for name in sorted(_names(function) | _names_of_defaults(text)):
        if name in seen or (name not in function.__globals__ and hasattr(builtins, name)):
            continue
        if name not in function.__globals__:
            raise UsageError(f"{wanted}: {function.__name__} uses {name!r}, which is not defined")
        found = _needed(name, function, wanted, found, seen)
    return found.merged(ModuleCode({}, {function.__name__: text}))


def _needed(
    name: str, user: FunctionType, wanted: str, found: ModuleCode, seen: set[str]
) -> ModuleCode:
    value = user.__globals__[name]
    if isinstance(value, ModuleType):
        return found.merged(ModuleCode({name: f"import {value.__name__} as {name}"}, {}))
    module = getattr(value, "__module__", None)
    if isinstance(value, FunctionType) and module == user.__module__ and value.__name__ == name:
        return _collected(value, wanted, found, seen)
    if _constant(value):
        return found.merged(ModuleCode({}, {name: f"{name} = {value!r}"}))
    if (
        module not in (None, user.__module__)
        and str(getattr(value, "__qualname__", "")).isidentifier()
    ):
        return found.merged(
            ModuleCode({name: f"from {module} import {value.__qualname__} as {name}"}, {})
        )
    raise UsageError(
        f"{wanted}: it uses {name!r}, a {type(value).__name__}: expected modules, functions,"
        " numbers and texts; make it in the function, or write an app"
    )


def _constant(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(_constant(each) for each in value)
    return isinstance(value, CONSTANTS)


def _names(function: FunctionType) -> set[str]:
    """Global names of the function and of those inside it."""
    codes = [function.__code__]
    names = set[str]()
    while codes:
        code = codes.pop()
        names |= {
            one.argval
            for one in dis.get_instructions(code)
            if one.opname in ("LOAD_GLOBAL", "LOAD_NAME")
        }
        codes += [constant for constant in code.co_consts if inspect.iscode(constant)]
    return names


def _names_of_defaults(text: str) -> set[str]:
    arguments = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.arguments)]
    defaults = [
        each for one in arguments for each in (*one.defaults, *one.kw_defaults) if each is not None
    ]
    return {node.id for each in defaults for node in ast.walk(each) if isinstance(node, ast.Name)}


def _text(function: FunctionType, wanted: str) -> str:
    try:
        text = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError) as problem:
        raise UsageError(
            f"{wanted}: {function.__name__} has no source to send: define it in a file or in a"
            " notebook's cell, or write an app"
        ) from problem
    if not text.lstrip().startswith("def "):
        raise UsageError(
            f"{wanted}: {function.__name__}: expected a plain function, found a decorator before it"
        )
    return text
