from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.job_node import JobNode


@pytest.fixture
def node(tmp_path: Path) -> Iterator[JobNode]:
    """A coordinator's node that is this machine."""
    made = JobNode(tmp_path)
    yield made
    made.end()
