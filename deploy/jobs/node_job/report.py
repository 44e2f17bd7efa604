"""`python -m deploy.jobs.node_job.report`: every job of this node as one JSON object, for the operator's `fab`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from cluster.logs.terminal import say_json
from deploy.jobs.node_job.folders import DEFAULT_ROOT, JobsRoot
from deploy.jobs.node_job.records import read_all


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the report."""
    parser = argparse.ArgumentParser(
        prog="python -m deploy.jobs.node_job.report", description="List the jobs of this node."
    )
    parser.add_argument("--root", type=Path, default=DEFAULT_ROOT, help="folder that holds jobs/")
    given = parser.parse_args(arguments)
    say_json({"schema": 1, "jobs": [record.to_json() for record in read_all(JobsRoot(given.root))]})
    return 0


if __name__ == "__main__":
    sys.exit(main())
