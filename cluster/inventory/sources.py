"""Where each value of an inventory came from: a line of the file, or a `--set` of the command line."""

from typing import Any, Final

from cluster.inventory.problem import Problem, shown
from cluster.inventory.yaml_document import KeyPath


class Sources:
    """The file's values with overrides applied, and the origin of each."""

    ABSENT: Final = object()
    """What `at` returns where no value was given."""

    def __init__(self, file: str, value: Any, lines: dict[KeyPath, int]) -> None:
        self.file = file
        self.value = value
        self._lines = lines
        self._overrides: dict[KeyPath, str] = {}

    def at(self, path: KeyPath) -> Any:
        """The value at `path`, or `ABSENT`."""
        value = self.value
        for part in path:
            in_section = isinstance(value, dict) and part in value
            in_list = isinstance(value, tuple) and isinstance(part, int) and part < len(value)
            if not in_section and not in_list:
                return self.ABSENT
            value = value[part]
        return value

    def has(self, path: KeyPath) -> bool:
        """Whether a value was given at `path`."""
        return self.at(path) is not self.ABSENT

    def is_given(self, path: KeyPath) -> bool:
        """Whether a value other than null was given at `path`."""
        return self.at(path) not in (self.ABSENT, None)

    def replace(self, path: KeyPath, value: Any, override: str) -> None:
        """Put a value where an override says, making the sections on the way."""
        self.value = _replaced(self.value, path, value)
        for origins in (self._lines, self._overrides):
            for stale in [known for known in origins if known[: len(path)] == path]:
                del origins[stale]
        self._overrides[path] = override

    def origin(self, path: KeyPath) -> tuple[int | None, str | None]:
        """The line, or the override, of the value at `path` or of the nearest section around it."""
        for length in range(len(path), 0, -1):
            section = path[:length]
            if section in self._lines:
                return self._lines[section], None
            for overridden, override in self._overrides.items():
                if overridden[:length] == section:  # itself, or a section made for what the override sets in it
                    return None, override
        return self._lines.get(()), None

    def key(self, path: KeyPath) -> str:
        """The path as `--set` takes it: `nodes.rpi03.address`, or `nodes.2.address` where the node has no name."""
        parts = [str(part) for part in path]
        if len(path) > 1 and path[0] == "nodes":
            name = self.at((*path[:2], "name"))
            if isinstance(name, str) and name:
                parts[1] = name
        return ".".join(parts)

    def problem(self, path: KeyPath, problem: str, remedy: str) -> Problem:
        """A problem with the value at `path`; where there is no such value, with the section that lacks it."""
        line, override = self.origin(path)
        value = self.at(path)
        text = None if value is self.ABSENT or isinstance(value, dict | tuple) else shown(value)
        return Problem(self.file, self.key(path), problem, remedy, line=line, value=text, override=override)


def _replaced(tree: Any, path: KeyPath, value: Any) -> Any:
    if not path:
        return value
    head, rest = path[0], path[1:]
    if isinstance(tree, tuple):
        return tuple(_replaced(item, rest, value) if index == head else item for index, item in enumerate(tree))
    section = tree if isinstance(tree, dict) else {}
    return {**section, head: _replaced(section.get(head), rest, value)}
