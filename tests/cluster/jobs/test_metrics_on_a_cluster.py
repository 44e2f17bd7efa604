"""Real processes are asked over HTTP while a training runs; promtool has no complaint."""

import subprocess
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from core.inventory.task import ROLE_NAMES, RoleName
from core.metrics.catalogue import exported_by
from tests.cluster.jobs.cluster import HANG_SECONDS, Cluster
from tests.habits import needs


def read(cluster: Cluster, role: RoleName) -> str:
    address = cluster.inventory.task(role, 0).metrics_address
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=HANG_SECONDS) as answer:
        return str(answer.read().decode())


def complaints(text: str) -> tuple[int, str]:
    """What promtool has to say."""
    checked = subprocess.run(
        [needs.tool("promtool"), "check", "metrics"],
        input=text,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=HANG_SECONDS,
    )
    return checked.returncode, checked.stdout


@pytest.mark.long
def test_all_of_a_training_and_its_last_figures(cluster: Cluster) -> None:
    words = ("epochs=3", "validation_subjects=1", "checkpoint.every_updates=20")
    with cluster.held(25, words=words) as job:
        now = cluster.metrics()
        assert sum(now["pscluster_train_checkpoint_bytes"].values()) > 0
        assert sum(now["pscluster_train_epoch"].values()) == 1
        texts = {role: read(cluster, role) for role in ROLE_NAMES}
        job.let_go(25)
        # This may be the last reading already: the job goes as soon as that one is done.
        last = cluster.metrics_when(job, "pscluster_train_epoch", 3)

        def ended() -> bool:
            last.update(cluster.metrics())
            return bool(last["pscluster_job_stage"]["coordinator", "ended", "0"])

        if not ended():
            job.when(ended)
        done = job.end(0)
    assert ("coordinator", "test", "0") in last["pscluster_train_loss"]

    for role, text in texts.items():
        assert complaints(text) == (0, ""), role
        jobs = ("every job", "training") if role == "coordinator" else ()
        wanted = exported_by("every process", *jobs)
        found = {each.name for each in text_string_to_metric_families(text) if each.samples}
        always = {entry.family for entry in wanted if not entry.where}
        assert always <= found <= {entry.family for entry in wanted}, role
    assert f'run="{done.run.name}"' in texts["coordinator"]
