"""Shards in this process: the parameter servers' devices are this machine's, everything else is the product's."""

import pytest

from cluster.engine import shards


@pytest.fixture
def local_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "device", lambda role, task: "/device:CPU:0")
