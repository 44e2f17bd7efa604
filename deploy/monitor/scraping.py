"""Whom Prometheus asks, and how: `prometheus.yml` and the lists of targets. Pure."""

import json
from typing import TYPE_CHECKING

from deploy.monitor.rule import as_yaml

if TYPE_CHECKING:
    from cluster.inventory import Inventory

JOB = "pscluster"
CONFIGURATION = "prometheus.yml"
RULES = "rules/*.yml"
TARGETS = "targets/*.json"


def configuration(inventory: "Inventory") -> str:
    """`prometheus.yml`: every process of the cluster, and the rules. Paths are relative to the file itself."""
    seconds = inventory.monitor.scrape_seconds
    return as_yaml(
        {
            "global": {
                "scrape_interval": f"{seconds}s",
                # A node that is busy training may take seconds for an answer, and no longer than until the next.
                "scrape_timeout": f"{min(seconds, 10)}s",
                "evaluation_interval": f"{seconds}s",
            },
            "rule_files": [RULES],
            "scrape_configs": [{"job_name": JOB, "file_sd_configs": [{"files": [TARGETS]}]}],
        }
    )


def targets(inventory: "Inventory") -> str:
    """The metrics ports of all role processes, the coordinator's too, which is there for the time of a job only.

    Labels say where a target is. Never `role` and `task`: the metrics have these themselves, because the coordinator
    tells about all workers.
    """
    entries = [
        {
            "targets": [task.metrics_address],
            "labels": {"cluster": inventory.cluster, "node": task.node, "process": task.name},
        }
        for task in inventory.tasks()
    ]
    return json.dumps(entries, indent=2) + "\n"
