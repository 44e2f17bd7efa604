"""Extensions by name: a folder lists its modules, each has a class that states its facts.

The folder's `__init__` has `EXTENSIONS`, a mapping such as `{"fp16": "fp16:Fp16"}`: the name a
person types, the module in the folder, the class in the module. A new extension is its module and
one line there. The classes are imported when one is first asked for; a class that leaves out a fact
is refused then.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from importlib import import_module
from typing import Any, Generic, TypeVar

from core import gone
from core.errors import UsageError

Extension = TypeVar("Extension")


class IncompleteExtensionError(TypeError):
    """An extension lacks a fact, or is not what its folder lists.

    The message names module and fact.
    """


def either(names: Iterable[str]) -> str:
    """The names as a sentence lists them: `a, b or c`."""
    *first, last = names
    if first:
        return f"{', '.join(first)} or {last}"
    return last


class Registry(Mapping[str, type[Extension]], Generic[Extension]):
    """The extensions of one kind, in the order in which their folder lists them."""

    def __init__(self, kind: str, package: str, facts: type[Extension]) -> None:
        """`kind` is the word for messages, `package` the folder.

        `facts` annotates what each class must state.
        """
        self.kind = kind
        self._package = package
        self._facts = facts

    @property
    def names(self) -> tuple[str, ...]:
        """The names alone, without importing what they name."""
        return tuple(import_module(self._package).EXTENSIONS)

    def words(self) -> str:
        """The names as a sentence lists them: `a, b or c`."""
        return either(self.names)

    @cached_property
    def _classes(self) -> dict[str, type[Extension]]:
        listed: Mapping[str, str] = import_module(self._package).EXTENSIONS
        return {name: self._loaded(name, place) for name, place in listed.items()}

    def _loaded(self, name: str, place: str) -> type[Extension]:
        module, _, class_name = place.partition(":")
        extension: Any = getattr(import_module(f"{self._package}.{module}"), class_name, None)
        where = f"{self._package}.{module}: the {self.kind} {class_name}"
        if not (isinstance(extension, type) and issubclass(extension, self._facts)):
            raise IncompleteExtensionError(
                f"{where}: expected a class that inherits from {self._facts.__name__}"
            )
        for fact in self._facts.__annotations__:
            if fact not in vars(extension):
                raise IncompleteExtensionError(
                    f"{where} does not state the fact `{fact}`: add it, {self._facts.__module__}"
                    " says what it means"
                )
        if vars(extension)["name"] != name:
            raise IncompleteExtensionError(
                f"{where}: expected `name = {name!r}` as listed, got {vars(extension)['name']!r}"
            )
        missing = [
            attribute
            for attribute in dir(extension)
            if getattr(getattr(extension, attribute, None), "__isabstractmethod__", False)
        ]
        if missing:
            raise IncompleteExtensionError(f"{where} does not define {', '.join(missing)}")
        return extension

    def __getitem__(self, name: str) -> type[Extension]:
        """The class of this name. Raises UsageError with the nearest name."""
        if name in self._classes:
            return self._classes[name]
        from difflib import get_close_matches  # a role process needs the names alone

        near = get_close_matches(name, self._classes, n=1)
        if name in gone.KINDS:
            remedy = gone.KINDS[name]
        elif near:
            remedy = f"did you mean {near[0]}?"
        else:
            remedy = f"choose {self.words()}"
        raise UsageError(f"unknown {self.kind} {name!r}: {remedy}")

    def __contains__(self, name: object) -> bool:
        return name in self._classes

    def __iter__(self) -> Iterator[str]:
        return iter(self._classes)

    def __len__(self) -> int:
        return len(self._classes)
