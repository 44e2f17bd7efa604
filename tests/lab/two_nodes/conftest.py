"""One lab for all modules of this folder: its boot and deployment take longer than the tests."""

from collections.abc import Iterator

import pytest

from tests.lab.two_nodes.place import Place, started


@pytest.fixture(scope="package")
def place(lab_can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A running cluster of two nodes. Each test leaves it without a job."""
    with started(tmp_path_factory.mktemp("operator")) as made:
        yield made
