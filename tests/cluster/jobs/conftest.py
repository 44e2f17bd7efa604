"""What several files of this room ask for."""

from pathlib import Path

import pytest

from core.data import Dataset
from tests.cluster.jobs.steps_here import recordings


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Where jobs leave their runs; nothing is there."""
    return tmp_path / "runs"


@pytest.fixture
def data(tmp_path: Path) -> Dataset:
    """The windows of `recordings`."""
    return recordings(tmp_path)
