"""Where each value of an inventory came from: a line of the file, or a `--set` of the command line."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from cluster.inventory.problem import Problem, shown
from cluster.inventory.yaml_document import KeyPath




@dataclass
class Sources:
    """The file's values with overrides applied, and the origin of each."""

    file: str
    value: Any
    lines: Mapping[KeyPath, int]
    overrides: dict[KeyPath, str] = field(default_factory=dict)
    ABSENT: ClassVar[object] = object()
    """What `at` returns where no value was given."""

    def problem(self, path: KeyPath, problem: str, remedy: str, *, with_value: bool = True) -> Problem:
        """A problem with the value at `path`; where there is no such value, with the section that lacks it."""
        line, override = self.origin(path)
        value = self.at(path)
        text = shown(value) if with_value and value is not self.ABSENT and not isinstance(value, dict | tuple) else None
        return Problem(self.file, self.key(path), problem, remedy, line=line, value=text, override=override)

    def origin(self, path: KeyPath) -> tuple[int | None, str | None]:
        """The line, or the override, of the value at `path` or of the nearest section around it."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.overrides:
                return None, self.overrides[path[:length]]
            if path[:length] in self.lines:
                return self.lines[path[:length]], None
        return None, None

    def at(self, path: KeyPath) -> Any:
        """The value at `path`, or `ABSENT`."""
        value = self.value
        for part in path:
            if isinstance(value, dict) and part in value:
                value = value[part]
            elif isinstance(value, tuple) and isinstance(part, int) and part < len(value):
                value = value[part]
            else:
                return self.ABSENT
        return value

    def has(self, path: KeyPath) -> bool:
        """Whether a value was given at `path`."""
        return self.at(path) is not self.ABSENT

    def key(self, path: KeyPath) -> str:
        """The path as `--set` takes it: `nodes.rpi03.address`, or `nodes.2.address` where the node has no name."""
        parts = [str(part) for part in path]
        if len(path) > 1 and path[0] == "nodes":
            name = self.at((*path[:2], "name"))
            if isinstance(name, str) and name:
                parts[1] = name
        return ".".join(parts)
