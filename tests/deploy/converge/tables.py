"""`tables.yaml`: the rows of tests, by table."""

from pathlib import Path
from typing import Any

import pytest
import yaml


def _frozen(value: Any) -> Any:
    """Lists as tuples, as facts have them."""
    match value:
        case list():
            return tuple(map(_frozen, value))
        case dict():
            return {key: _frozen(one) for key, one in value.items()}
    return value


TABLES: dict[str, Any] = _frozen(
    yaml.safe_load(Path(__file__).with_name("tables.yaml").read_text(encoding="utf-8"))
)


def rows(table: str, *names: str) -> pytest.MarkDecorator:
    """A test for each row of a table, given to it by these names, or as `row`."""
    if names:
        return pytest.mark.parametrize(names, TABLES[table])
    return pytest.mark.parametrize("row", TABLES[table], ids=str)
