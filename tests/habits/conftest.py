"""Writes down what was loaded when the tests were collected."""

import sys

import pytest

from tests.habits.loaded import DEAR, LOADED


def pytest_collection_finish(session: pytest.Session) -> None:
    """Look before the first test runs."""
    session.config.stash[LOADED] = DEAR & sys.modules.keys()
