from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.cluster.connection import NodeConnection
from deploy.cluster.login import PinnedKeys
from tests.deploy.over_ssh.nodes import trusting
from tests.deploy.over_ssh.sshd import Sshd, needs_sudo, running_sshd


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with running_sshd(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture
def pinned(sshd: Sshd, tmp_path: Path) -> PinnedKeys:
    return trusting(tmp_path, sshd)


@pytest.fixture
def node(sshd: Sshd, pinned: PinnedKeys) -> Iterator[NodeConnection]:
    connection = NodeConnection(sshd.address(), pinned)
    yield connection
    connection.close()


@pytest.fixture(scope="session")
def sudo() -> None:
    """The account that runs the tests may become root on its own sshd."""
    needs_sudo()
