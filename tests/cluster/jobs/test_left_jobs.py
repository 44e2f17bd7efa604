"""A job that a test leaves on a shared cluster is told from the cluster's roles."""

import subprocess
import sys

from tests.cluster.jobs.cluster import cluster_of


def test_what_names_the_cluster_and_is_no_role_is_a_job() -> None:
    with cluster_of(workers=1, start=False) as cluster:
        words = [sys.executable, "-c", "input()", str(cluster.inventory.path)]
        role, job = (subprocess.Popen(words, stdin=subprocess.PIPE) for _ in range(2))
        cluster.processes["worker:0"] = role
        try:
            assert dict(cluster.jobs()) == {job.pid: " ".join(words)}
        finally:
            job.kill()
            job.communicate()
        assert list(cluster.jobs()) == []
        cluster.kill("worker:0")
        role.communicate()
