"""One lab for all modules of this folder: its boot and deployment take longer than the tests."""

from collections.abc import Iterator

import pytest

from tests.lab.two_nodes.place import Place, started


@pytest.fixture(scope="package")
def place(lab_can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A running cluster of two nodes."""
    with started(tmp_path_factory.mktemp("operator")) as running:
        yield running


@pytest.fixture(autouse=True)
def as_it_was(place: Place) -> Iterator[None]:
    """Fails the test that leaves the cluster other than it found it: the next one needs it."""
    before = place.snapshot()
    yield
    assert place.snapshot() == before
