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
        """Return both. Raises UsageError where they mean different things by one name."""
        for code, other_code in (
            (self.imports, other.imports),
            (self.definitions, other.definitions),
        ):
            for name in code.keys() & other_code.keys():
                if code[name] != other_code[name]:
                    raise UsageError(
                        f"{name}: two of the given functions mean different things by this name"
                    )
        return ModuleCode(self.imports | other.imports, self.definitions | other.definitions)

    def text(self) -> str:
        """Return the code as a file has it."""
        return "\n".join(self.imports.values()) + "\n\n\n" + "\n\n".join(self.definitions.values())


def source_of(
    function: Callable[..., Any], target_name: str, positional: Sequence[str]
) -> ModuleCode:
    """Return the source under the name `target_name`, as a function of `positional`.

    A function that takes nothing is wrapped.

    Raises UsageError: no function, one without a source, or one that needs a value that has none.
    """
    if not isinstance(function, FunctionType) or function.__name__ == "<lambda>":
        raise UsageError(
            f"{target_name}: expected a function made with `def`, found {function!r:.100}"
        )
    code = _collected(function, target_name, ModuleCode(), set())
    count = len(inspect.signature(function).parameters)
    if count not in (0, len(positional)):
        raise UsageError(
            f"{target_name}: expected a function of {', '.join(positional)} or of nothing, found"
            f" {count} parameters"
        )
    name = function.__name__
    if name == target_name and count:
        return code
    arguments = ", ".join(positional)
    if count:
        passed = arguments
    else:
        passed = ""
    definitions = {}
    key = target_name
    if name == target_name:
        name = f"_{name}"
        key = f"{target_name}()"
        definitions[name] = f"{name} = {target_name}"
    definitions[key] = f"\ndef {target_name}({arguments}):\n    return {name}({passed})\n"
    return code.merged(ModuleCode({}, definitions))


def _collected(
    function: FunctionType, target_name: str, code: ModuleCode, visited: set[str]
) -> ModuleCode:
    visited.add(function.__name__)
    used = inspect.getclosurevars(function)
    if used.nonlocals:
        raise UsageError(
            f"{target_name}: {function.__name__} uses {min(used.nonlocals)!r} of the function"
            " around it: pass it in"
        )
    text = _text(function, target_name)
    for name in sorted(_names(function) | _names_of_defaults(text)):
        if name in visited or (name not in function.__globals__ and hasattr(builtins, name)):
            continue
        if name not in function.__globals__:
            raise UsageError(
                f"{target_name}: {function.__name__} uses {name!r}, which is not defined"
            )
        code = _needed(name, function, target_name, code, visited)
    return code.merged(ModuleCode({}, {function.__name__: text}))


def _needed(
    name: str, user: FunctionType, target_name: str, code: ModuleCode, visited: set[str]
) -> ModuleCode:
    value = user.__globals__[name]
    if isinstance(value, ModuleType):
        return code.merged(ModuleCode({name: f"import {value.__name__} as {name}"}, {}))
    module = getattr(value, "__module__", None)
    if isinstance(value, FunctionType) and module == user.__module__ and value.__name__ == name:
        return _collected(value, target_name, code, visited)
    if _constant(value):
        return code.merged(ModuleCode({}, {name: f"{name} = {value!r}"}))
    if (
        module not in (None, user.__module__)
        and str(getattr(value, "__qualname__", "")).isidentifier()
    ):
        return code.merged(
            ModuleCode({name: f"from {module} import {value.__qualname__} as {name}"}, {})
        )
    raise UsageError(
        f"{target_name}: it uses {name!r}, a {type(value).__name__}: expected modules, functions,"
        " numbers and texts; make it in the function, or write an app"
    )


def _constant(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(_constant(element) for element in value)
    return isinstance(value, CONSTANTS)


def _names(function: FunctionType) -> set[str]:
    """Return global names of the function and of those inside it."""
    codes = [function.__code__]
    names = set[str]()
    while codes:
        code = codes.pop()
        names |= {
            instruction.argval
            for instruction in dis.get_instructions(code)
            if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME")
        }
        codes += [constant for constant in code.co_consts if inspect.iscode(constant)]
    return names


def _names_of_defaults(text: str) -> set[str]:
    arguments = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.arguments)]
    defaults = [
        default
        for argument_list in arguments
        for default in (*argument_list.defaults, *argument_list.kw_defaults)
        if default is not None
    ]
    return {
        node.id for default in defaults for node in ast.walk(default) if isinstance(node, ast.Name)
    }


def _text(function: FunctionType, target_name: str) -> str:
    try:
        text = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError) as problem:
        raise UsageError(
            f"{target_name}: {function.__name__} has no source to send: define it in a file or in a"
            " notebook's cell, or write an app"
        ) from problem
    if not text.lstrip().startswith("def "):
        raise UsageError(
            f"{target_name}: {function.__name__}: expected a plain function, found a decorator"
            " before it"
        )
    return text
