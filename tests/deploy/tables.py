"""Rows of tests, in a file beside them: a table for each test, which is called as the test is."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.tables import rows_of

Test = TypeVar("Test", bound=Callable[..., None])


class Tables:
    """The tables of `tables.yaml` beside a module of tests."""

    def __init__(self, module: str) -> None:
        self._tables: dict[str, list[Any]] = rows_of(Path(module).with_name("tables.yaml"))

    def __call__(self, *names: str) -> Callable[[Test], Test]:
        """One test for each row, given to it by these names."""

        def for_each(test: Test) -> Test:
            rows = self._tables[test.__name__]
            marked: Test = pytest.mark.parametrize(",".join(names), rows)(test)
            return marked

        return for_each
