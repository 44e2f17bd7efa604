"""What holds for every test: it leaves no process, listening port, thread or file behind."""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.habits import leaks


def _watched() -> tuple[Path, ...]:
    return tuple({leaks.PROJECT, Path.cwd()})


@pytest.fixture(scope="session", autouse=True)
def session_leaves_nothing_behind() -> Iterator[str]:
    """Marks what the tests start, and looks once more when the fixtures that outlive a test are gone too."""
    session = uuid.uuid4().hex
    os.environ[leaks.MARK] = session
    folders = _watched()
    before = leaks.take(folders, session)
    yield session
    left = leaks.left_behind(before, folders, session)
    if left:
        pytest.fail("the test session left behind: " + "; ".join(left), pytrace=False)


@pytest.fixture(autouse=True)
def leaves_nothing_behind(session_leaves_nothing_behind: str) -> Iterator[None]:
    """Fails the teardown of a test after which something is there that was not there before."""
    folders = _watched()
    before = leaks.take(folders, session_leaves_nothing_behind)
    yield
    left = leaks.left_behind(before, folders, session_leaves_nothing_behind)
    if left:
        pytest.fail("the test left behind: " + "; ".join(left), pytrace=False)
