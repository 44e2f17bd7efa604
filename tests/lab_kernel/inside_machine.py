"""What an emulated machine tries of itself; `whole_machine` boots it and reads what it prints."""

import platform
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from core.cage import landlock
from tests.cluster.jobs import cluster as clusters
from tests.cluster.jobs.cluster import SMALL, cluster_of
from tests.core.server import processes, test_graphs_outside

DIGEST = "digest:"
TRAINING = (*SMALL, "jobs.train.epochs=2")
PATIENT = (
    "import sys, tensorflow as tf, pathlib, os\n"
    "from tests.core.server import graph_attacks as attacks\n"
    "attacks.TIMEOUT = tf.compat.v1.RunOptions(timeout_in_ms=60000)\n"
    "attacks.main(sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3])\n"
    "sys.stdout.flush()\n"
    "os._exit(0)\n"
)
"""The attacks of `tests.core.server.graph_attacks` with the time that an emulator needs."""
HANG_SECONDS = 1200.0


def main() -> None:
    """Train, then try the graphs of a member, without a cage and on each role."""
    began = time.monotonic()
    clusters.HANG_SECONDS = HANG_SECONDS
    processes.HANG_SECONDS = HANG_SECONDS
    vars(test_graphs_outside)["python"] = patient

    def said(line: str) -> None:
        print(f"{line} after {time.monotonic() - began:.0f} s")

    said(f"{platform.machine()}, Linux {platform.release()}, {landlock.kernel_coverage().line()}")
    print(f"{DIGEST} {trained('sync')}")
    said("trained")
    attack = test_graphs_outside.test_no_graph_of_a_member_gets_outside_of_a_role
    attempts: dict[str, Callable[[Path], None]] = {
        "without a cage": test_graphs_outside.test_without_a_cage_each_graph_does_what_it_is_for,
        "ps_node": partial(attack, module="ps_node"),
        "worker_node": partial(attack, module="worker_node"),
    }
    for name, attempt in attempts.items():
        with tempfile.TemporaryDirectory() as folder:
            attempt(Path(folder))
        said(f"graphs, {name}: as expected")
    print("done")


def trained(mode: str) -> str:
    """The digest of a small training on a parameter server and two workers, or alone."""
    with cluster_of(2, start=mode != "single") as cluster:
        source = f"jobs.train.data.source={cluster.mine}"
        words = (source, *TRAINING, f"jobs.train.mode={mode}")
        return str(cluster.job("train", *words, code=0).result["parameters_sha256"])


def patient(*words: str) -> Any:
    """As `processes.python`, for `-m tests.core.server.graph_attacks` and its words."""
    return processes.python("-c", PATIENT, *words[2:])


if __name__ == "__main__":
    main()
