"""docs/jobs.md lists what is exported and what a result holds, and nothing else."""

import re

from prometheus_client import CollectorRegistry

from cluster.engine.membership import Membership
from cluster.inventory import load
from cluster.jobs.train_result import TrainReport
from cluster.jobs.training_metrics import PiMetrics, TrainingMetrics, WorkerStates
from tests.jobs.cluster import PROJECT

PAGE = (PROJECT / "docs" / "jobs.md").read_text()


def test_every_metric_of_the_coordinator_is_listed_and_no_other() -> None:
    registry = CollectorRegistry()
    TrainingMetrics(registry)
    PiMetrics(registry, 1)
    registry.register(WorkerStates(Membership(range(2)).workers))
    exported = {
        family.name + ("_total" if family.type == "counter" else "") for family in registry.collect()
    }  # fmt: skip
    listed = set(re.findall(r"`(pscluster_\w+)`", PAGE[PAGE.index("## Metrics") :]))
    assert listed == exported
    assert all(name.startswith("pscluster_") for name in exported)


def test_every_key_of_a_training_result_is_listed() -> None:
    described = TrainReport(load(PROJECT / "inventories" / "local.yaml")).describe()
    section = PAGE[PAGE.index("### `result.json`") : PAGE.index("### `events.jsonl`")]
    listed = set(re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in section.splitlines() if "|" in line)))
    assert listed == {"schema", "job", "status", "reason", *described}
