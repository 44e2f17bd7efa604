"""The first cluster definition says for the whole run who sees which tasks."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from core.engine import runtime


@pytest.mark.parametrize("workers_meet", [False, True])
def test_a_worker_sees_other_workers_only_where_functions_span_them(
    workers_meet: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    definitions: list[Any] = []
    context = SimpleNamespace(
        set_server_def=lambda definition, keep_alive_secs: definitions.append(definition),
        ensure_initialized=lambda: None,
    )
    monkeypatch.setattr(runtime, "_context", lambda: context)
    monkeypatch.setattr(runtime, "Guardian", MagicMock())
    runtime.Runtime(runtime.Peers("", (), ("127.0.0.1:1",) * 2), workers_meet=workers_meet)
    (definition,) = definitions
    seen = {
        (job.name, task): list(filters.device_filters)
        for job in definition.cluster_device_filters.jobs
        for task, filters in job.tasks.items()
    }
    # Without filters a task sees all, and parameter servers send values to every worker.
    alone = {("worker", task): ["/job:ps", "/job:chief"] for task in range(2)}
    assert seen == ({} if workers_meet else alone)
