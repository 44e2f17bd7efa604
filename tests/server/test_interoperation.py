"""The lean server and TensorFlow's own take part in one cluster, whichever of them holds the variables."""

import json
import subprocess
import sys

import pytest

from tests.server.processes import HANG_SECONDS, PROJECT, free_ports, running

INCREMENTS = 25
SUM_OF_SQUARED_ONES = 64  # 4 x 4 ones times themselves: 16 elements of 4


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("parameter_server", ["lean", "stock"])
def test_lean_and_stock_servers_serve_one_cluster(parameter_server: str) -> None:
    peers = ["--peers", "2"]
    with (
        running("ps_node", *peers, "--server", parameter_server) as ps,
        running("worker_node", *peers, "--server", "lean", task=0) as first,
        running("worker_node", *peers, "--server", "stock", task=1) as second,
    ):
        ports = [*free_ports(1), ps.port, first.port, second.port]
        ended = subprocess.run(
            [sys.executable, "-m", "tests.server.interoperate", *map(str, ports)],
            capture_output=True,
            text=True,
            cwd=PROJECT,
            timeout=HANG_SECONDS,
        )
    assert ended.returncode == 0, ended.stderr
    seen = json.loads(ended.stdout)
    assert seen["increments"] == 2 * INCREMENTS
    assert seen["devices"] == [f"/job:worker/replica:0/task:{task}/device:CPU:0" for task in range(2)]
    assert seen["total"] == 2 * INCREMENTS * SUM_OF_SQUARED_ONES
