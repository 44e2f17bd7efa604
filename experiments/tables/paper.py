"""The tables of papers as they were printed: JSON in `papers/`, read once."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

PAPERS = Path(__file__).with_name("papers")

Row = Mapping[str, Any]


@dataclass(frozen=True)
class PaperTable:
    """A table of a paper. `place` is its name there, such as `Table 6`."""

    place: str
    rows: Sequence[Row]
    settings: Mapping[str, Mapping[str, Any]]
    """Settings by column: the `key` of a training that it names, with the `default` of one that
    does not set it, and what a row means that has null there (`empty`)."""

    def fits(self, row: Row, settings: Mapping[str, Any]) -> bool:
        """Whether a row is of a training with these settings. A null without `empty` fits all."""
        for column, setting in self.settings.items():
            cell = row[column]
            if cell is None:
                cell = setting.get("empty")
            if cell is not None and settings.get(setting["key"], setting["default"]) != cell:
                return False
        return True


def paper_tables() -> list[str]:
    """The names of all tables."""
    return sorted(path.stem for path in PAPERS.glob("*.json"))


@cache
def paper_table(name: str) -> PaperTable:
    """A table by its name, such as `thesis-runs`."""
    content = json.loads((PAPERS / f"{name}.json").read_text(encoding="utf-8"))
    return PaperTable(content["source"]["place"], content["rows"], content.get("settings", {}))
