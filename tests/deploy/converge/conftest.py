"""Played nodes and deployments that several modules start from."""

from pathlib import Path

import pytest

from tests.deploy.converge.pi import Cluster, PlayedPis, machines_for, thesis
from tests.deploy.converge.played_node import PlayedNode


@pytest.fixture
def node(tmp_path: Path) -> PlayedNode:
    return PlayedNode(tmp_path / "node")


@pytest.fixture(scope="module")
def pis(tmp_path_factory: pytest.TempPathFactory) -> PlayedPis:
    """Machines as the tests before left them."""
    return PlayedPis(tmp_path_factory.mktemp("pis"))


@pytest.fixture(scope="session")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """What a worker's node and the server are after a deployment of the shipped inventory."""
    pis = PlayedPis(tmp_path_factory.mktemp("deployed"))
    return pis.deploy(machines_for(thesis()), "rpi01", "rpi11")[0]
