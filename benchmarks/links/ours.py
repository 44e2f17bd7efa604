"""Our training of the benchmarks' bi-LSTM, on demand.

`python -m benchmarks.links.ours`.
"""

import argparse

from benchmarks.wire.network import ResidualBidirectional
from benchmarks.wire.ours import VARIANTS, job_of, steps_of, two_batches
from benchmarks.wire.steps import serve_rounds
from cluster.jobs.cancel import Cancel
from cluster.jobs.job_metrics import CoordinatorMetrics
from cluster.jobs.modes import Setup, mode_of
from cluster.jobs.session import Session
from core.consistency import Speeds
from core.inventory import load
from ps_node.shard import VectorState
from worker_node.recordings import WorkerWindows


def main() -> None:
    """Train for as many steps as each line of standard input says."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.links.ours")
    parser.add_argument("--inventory", required=True)
    parser.add_argument("--variant", choices=VARIANTS, default="ours")
    given = parser.parse_args()
    inventory = load(given.inventory)
    network = ResidualBidirectional()
    job = job_of(given.variant)
    with (
        two_batches() as dataset,
        CoordinatorMetrics() as metrics,
        Session(inventory, Cancel(), metrics) as session,
    ):
        data = WorkerWindows(dataset)
        state = VectorState(network.initial(0))
        places = dict(enumerate(session.places))
        mode = mode_of(Setup(job, network, data, state, places, Speeds()))
        serve_rounds(steps_of(job, mode, session.dispatch(job.deadline_seconds)))


if __name__ == "__main__":
    main()
