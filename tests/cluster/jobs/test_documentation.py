"""docs/runs.md lists what a result holds, and nothing else."""

import re

from cluster.jobs.cancel import Cancel
from cluster.jobs.lifecycle import JobContext
from cluster.jobs.progress import Display
from cluster.jobs.train import TrainRun
from core.inventory import load
from tests.cluster.jobs.cluster import PROJECT

PAGE = (PROJECT / "docs" / "runs.md").read_text()


def test_every_key_of_a_training_result_is_listed() -> None:
    inventory = load(PROJECT / "inventories" / "local.yaml")
    described = TrainRun(JobContext(inventory, Display(quiet=True), Cancel())).result()
    section = PAGE[PAGE.index("## `result.json`") : PAGE.index("## `model/`")]
    listed = set(
        re.findall(
            r"`(\w+)`", "".join(line.split("|")[1] for line in section.splitlines() if "|" in line)
        )
    )
    assert listed == {"schema", "job", "status", "reason", *described}
