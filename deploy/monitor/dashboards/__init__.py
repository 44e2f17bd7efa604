"""Grafana's dashboards as JSON, made with Grafana's own builders (`grafana-foundation-sdk`)."""

from collections.abc import Mapping

from deploy.monitor.dashboards.jobs import pi_job, training
from deploy.monitor.dashboards.node import node
from deploy.monitor.dashboards.overview import overview


def dashboards() -> Mapping[str, str]:
    """Every dashboard by the name of its file."""
    return {
        "pscluster-overview.json": overview(),
        "pscluster-training.json": training(),
        "pscluster-node.json": node(),
        "pscluster-pi.json": pi_job(),
    }
