"""Where the real recordings lie, for the tests that read them, and `fab data show`."""

import os
from pathlib import Path
from typing import Any

import pytest

from core.data.archive import file_digest
from core.data.show import __main__ as command
from core.data.source import Source, find_source
from core.ground.errors import DataError
from tests.core.data.desk import Desk, Show
from tests.habits import needs

PUBLISHED_SHA256 = "a8954d1707c250290bc041f54688c804cb836b433651b3380cc0fe2cce2bb480"
"""The hash of the archive that the figures were measured on.

It is the published one without its 561 hand-made features.
"""

PROJECT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def published() -> Source:
    """The HAPT archive the figures were measured on; the test is skipped where it is not."""
    try:
        source = find_source(None, os.environ, PROJECT, PROJECT / "no-such-cache")
    except DataError as problem:
        needs.skip(f"the real recordings cannot be used: {problem}")
    if source.kind != "hapt" or source.path is None or source.path.is_dir():
        needs.skip("the real recordings are neither in $PSCLUSTER_DATA nor in ../shared/data")
    if file_digest(source.path) != PUBLISHED_SHA256:
        needs.skip(f"{source.path} is not the archive the figures were measured on")
    return source


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A folder for the recordings of one test, and its cache."""
    return Desk(tmp_path)


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str]) -> Show:
    """Runs `fab data show` with these words: what it says, if its exit code is `code`."""

    def run(*words: object, code: int = 0) -> Any:
        capsys.readouterr()
        assert command.main([*map(str, words)]) == code
        return capsys.readouterr()

    return run
