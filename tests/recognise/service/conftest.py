"""The service and the browser that the tests of one module share."""

from collections.abc import Iterator
from contextlib import closing

import httpx
import pytest

from recognise.service.worker.process import Nursery
from tests.cluster.pages.browser import chromium
from tests.lazy import Browser
from tests.recognise.service.running import Service, served


@pytest.fixture(scope="module")
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """A service of the model that the module's `EXPORT` writes, started with its `WORDS`."""
    folder = tmp_path_factory.mktemp("service")
    words = getattr(request.module, "WORDS", ())
    with served(folder, *words, make=request.module.EXPORT) as found:
        yield found


@pytest.fixture
def client(running: Service) -> Iterator[httpx.Client]:
    with running.client() as made:
        yield made


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    """What starts the processes of models in a test's own process."""
    with closing(Nursery()) as started:
        yield started


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running
