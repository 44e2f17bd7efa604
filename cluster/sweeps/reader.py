"""Takes values out of a sweep's parsed file, and names each mistake with line and nearest key."""

from collections.abc import Mapping
from typing import Any

from core.documents import InventoryProblem, suggestion, yaml_words
from core.documents.yaml_document import Document, KeyPath
from core.ground import gone

SETTINGS = "jobs.train."
"""The keys that a sweep may set begin with it: a run is a training."""
SEED = "jobs.train.seed"


class DocumentReader:
    """Takes values out of a parsed document and collects the problems on the way."""

    def __init__(self, document: Document) -> None:
        self.file = document.file
        self.lines = document.lines
        self.top: dict[str, Any] = document.value
        self.problems = list(document.problems)

    def add(self, path: KeyPath, problem: str, remedy: str, value: object = None) -> None:
        """A problem with the value at `path`, or with the nearest one around it."""
        near = path
        while near not in self.lines and near:
            near = near[:-1]
        key = ".".join(str(part) for part in path)
        if value is None:
            value_text = None
        else:
            value_text = yaml_words(value)
        self.problems.append(
            InventoryProblem(
                self.file, key, problem, remedy, line=self.lines.get(near), value=value_text
            )
        )

    def refuse_unknown(
        self, section: Mapping[str, Any], keys: tuple[str, ...], path: KeyPath = ()
    ) -> None:
        """Name every key that is none of `keys`, with the nearest."""
        for key in section:
            if key not in keys:
                self.add(
                    (*path, key),
                    "unknown key",
                    gone.KEYS.get(key)
                    or suggestion(key, keys)
                    or f"the keys here are {', '.join(keys)}",
                )

    def mapping(self, path: KeyPath, value: Any) -> dict[str, Any]:
        """The value if it is a mapping, else an empty one and a problem."""
        if isinstance(value, dict):
            return value
        if value is not None:
            self.add(
                path, "expected a section with keys", "write its keys below it, indented", value
            )
        return {}

    def items(self, path: KeyPath, value: Any) -> tuple[Any, ...]:
        """The value if it is a list with something in it, else an empty one and a problem."""
        if isinstance(value, tuple) and value:
            return value
        self.add(path, "expected a list of values", "write e.g. [8, 16]", value)
        return ()

    def whole(self, path: KeyPath, value: Any, low: int, high: int) -> int:
        """A whole number of these bounds, else `low` and a problem."""
        if type(value) is int and low <= value <= high:
            return value
        self.add(path, f"expected a whole number from {low} to {high}", "correct it", value)
        return low

    def word(self, path: KeyPath, value: Any, choices: tuple[str, ...]) -> str:
        """Return one of the choices, else the first and a problem."""
        if value in choices:
            return str(value)
        if isinstance(value, str):
            near = suggestion(value, choices)
        else:
            near = None
        self.add(path, f"expected {' or '.join(choices)}", near or "write one of them", value)
        return choices[0]

    def setting(self, path: KeyPath, key: str) -> None:
        """Refuse a key that no run may set."""
        if not key.startswith(SETTINGS) or key == SETTINGS:
            remedy = suggestion(f"{SETTINGS}{key.removeprefix('train.')}", _usual_keys())
            self.add(
                path,
                f"expected a key below {SETTINGS.rstrip('.')}",
                remedy or "a run is a training: see --set",
            )
        elif key == SEED:
            self.add(path, "the seeds have a key of their own", "write them below `seeds:`")


def _usual_keys() -> list[str]:
    from core.inventory.schema_keys import keys_of
    from core.inventory.training import TrainJob

    return [f"{SETTINGS}{key}" for key in keys_of(TrainJob)]
