"""A process that holds parameters is stopped: the job ends, and resumes exactly."""

import signal

import pytest

from core.ground.errors import ExitCode
from tests.cluster.jobs.cluster import Cluster
from tests.cluster.jobs.golden import golden
from tests.tables import table

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

HELD = 5
RECIPE = ("epochs=12", "slots=4", "validation_subjects=1")
WORDS = (*RECIPE, "checkpoint.every_updates=2")


@pytest.mark.parametrize(
    ("mode", "holder"),
    table("cluster/jobs/rows", "stopped"),
)
def test_a_training_resumes_without_an_update_lost_or_doubled(
    two_servers: Cluster, mode: str, holder: str
) -> None:
    words = (f"mode={mode}", *WORDS)
    with two_servers.held(HELD, words=words) as job:
        two_servers.processes[holder].send_signal(signal.SIGSTOP)
        job.let_go(HELD)
        lost = job.end(ExitCode.SERVER_LOST)
    assert "is gone (" in lost.errors.splitlines()[-1]
    healthy = {name for name, process in two_servers.processes.items() if process.poll() is None}
    assert healthy == {"ps:0", "ps:1", "worker:0", "worker:1"}, "nobody was killed"
    fenced = "worker:0" if holder == "worker:1" else "worker"
    assert f"fencing {fenced}" not in lost.errors
    two_servers.replace(holder)
    done = two_servers.train(*words, resumed=lost.run)
    assert done.updates > 0
    assert done.result["resumptions"] == 1
    if mode in ("sync", "allreduce"):
        assert done.result["parameters_sha256"] == golden(RECIPE)
        assert done.updates == done.result["updates"]["scheduled"]
