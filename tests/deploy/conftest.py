from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.playing import PlayedCluster


@pytest.fixture
def played(tmp_path: Path) -> Iterator[PlayedCluster]:
    cluster = PlayedCluster(tmp_path)
    yield cluster
    cluster.end()
