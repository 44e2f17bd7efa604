"""Each process of pytest collects all tests, so what that loads is paid for many times."""

import pytest

from tests.habits.loaded import LOADED


def test_collecting_tests_loads_no_dear_package(pytestconfig: pytest.Config) -> None:
    loaded = pytestconfig.stash[LOADED]
    assert not loaded, f"import it in a function, or from core.ground.lazy or tests.lazy: {loaded}"
