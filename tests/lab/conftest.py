"""The fixtures of tests in the lab.

Tests that need the lab are marked `lab`, and skipped where none can run.
"""

from collections.abc import Iterator

import pytest

from tests.habits import needs
from tests.lab import requirements
from tests.lab.lab import Lab


@pytest.fixture(scope="session")
def lab_can_run() -> None:
    needs.possible(requirements.why_not())


@pytest.fixture(scope="module")
def lab(lab_can_run: None) -> Iterator[Lab]:
    """Three healthy nodes. A module that needs others makes its own lab."""
    with Lab.up(3) as lab:
        yield lab
