"""What `status` learns of a running job: of any number of workers, and never an empty answer for
one that failed."""

from types import SimpleNamespace
from typing import Any

import pytest

from core.ground.errors import ClusterError
from deploy.cluster.fleet import Local
from deploy.jobs import services
from deploy.jobs.services import coordinator_metrics
from deploy.terminal.console import progress_line
from tests.deploy.answering import answering
from tests.ports import free_port

OWN = 'pscluster_train_planned_epochs{role="coordinator",task="0"} 12.0\n'
A_WORKER = 'pscluster_train_step_seconds_bucket{role="worker",task="1",part="pull",le="0.1"} 1.0\n'


def asked(port: int) -> str:
    coordinator = SimpleNamespace(node="here", metrics_address=f"127.0.0.1:{port}")
    cluster: Any = SimpleNamespace(inventory=SimpleNamespace(task=lambda *_: coordinator))
    fleet: Any = SimpleNamespace(nodes={"here": Local("here")})
    return coordinator_metrics(cluster, fleet)


def test_a_coordinator_of_hundreds_of_workers_is_read() -> None:
    with answering(200, body=(A_WORKER * 30_000 + OWN).encode()) as server:
        found = asked(server.server_port)
    assert found == OWN
    assert progress_line(found).startswith("train: epoch 0 of 12")


def test_no_listener_is_no_job_and_no_answer_is_no_statement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert asked(free_port()) == ""
    monkeypatch.setattr(
        services, "_ASK", services._ASK.replace(str(services.MOST_METRICS_BYTES), "1000")
    )
    with (
        answering(200, body=(A_WORKER * 100).encode()) as server,
        pytest.raises(ClusterError, match="at most 1000 bytes, got more"),
    ):
        asked(server.server_port)
