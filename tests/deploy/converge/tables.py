"""`tables.yaml`: the rows of tests, by table."""

from typing import Any

import pytest

from tests.tables import table


def _frozen(value: Any) -> Any:
    """Lists as tuples, as facts have them."""
    match value:
        case list():
            return tuple(map(_frozen, value))
        case dict():
            return {key: _frozen(one) for key, one in value.items()}
    return value


TABLES: dict[str, Any] = _frozen(table("deploy/converge/tables"))


def rows(table: str, *names: str) -> pytest.MarkDecorator:
    """A test for each row of a table, given to it by these names, or as `row`."""
    if names:
        return pytest.mark.parametrize(names, TABLES[table])
    return pytest.mark.parametrize("row", TABLES[table], ids=str)
