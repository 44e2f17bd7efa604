"""Where the real recordings lie, for the tests that read them."""

import os
from pathlib import Path

import pytest

from cluster.data.archive import file_digest
from cluster.data.hapt import PUBLISHED_SHA256
from cluster.data.source import Source, find_source
from cluster.errors import DataError

PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def published() -> Source:
    """The HAPT archive the figures were measured on; the test is skipped where it is not."""
    try:
        source = find_source(None, os.environ, PROJECT, PROJECT / "no-such-cache")
    except DataError as problem:
        pytest.skip(f"the real recordings cannot be used: {problem}")
    if source.kind != "hapt" or source.path is None or source.path.is_dir():
        pytest.skip("the real recordings are neither in $PSCLUSTER_DATA nor in ../shared/data")
    if file_digest(source.path) != PUBLISHED_SHA256:
        pytest.skip(f"{source.path} is not the archive the figures were measured on")
    return source
