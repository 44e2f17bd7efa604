"""Every file of the folder that Prometheus and Grafana read, by its path in it."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.atomic_write import atomic_write
from cluster.errors import ClusterError
from deploy.monitor import grafana, scraping
from deploy.monitor.alerts import ALERTS
from deploy.monitor.recordings import RECORDINGS
from deploy.monitor.rule import rule_file

if TYPE_CHECKING:
    from cluster.inventory import Inventory

RECORDING_RULES = "rules/pscluster-recording.yml"
ALERT_RULES = "rules/pscluster-alerts.yml"
RECORDING_GROUP, ALERT_GROUP = "pscluster-recording", "pscluster-alerts"
CLUSTER_TARGETS = "targets/pscluster-{cluster}.json"


def prometheus_files(inventory: "Inventory") -> Mapping[str, str]:
    """What Prometheus reads. The rules of two clusters are the same, however often each has them evaluated.

    Their targets have files of their own.
    """
    seconds = inventory.monitor.scrape_seconds
    return {
        CLUSTER_TARGETS.format(cluster=inventory.cluster): scraping.targets(inventory),
        RECORDING_RULES: rule_file(RECORDING_GROUP, RECORDINGS, seconds),
        ALERT_RULES: rule_file(ALERT_GROUP, ALERTS, seconds),
        scraping.CONFIGURATION: scraping.configuration(inventory),
    }


def grafana_files(prometheus_url: str, scrape_seconds: int) -> Mapping[str, str]:
    """What Grafana reads."""
    from deploy.monitor.dashboards import dashboards  # a library that only this needs

    return {
        "grafana/provisioning/datasources/pscluster.yml": grafana.datasource(prometheus_url, scrape_seconds),
        "grafana/provisioning/dashboards/pscluster.yml": grafana.provider(),
        **{f"grafana/dashboards/{name}": text for name, text in dashboards().items()},
    }


def url(inventory: "Inventory") -> str:
    """Where the cluster's own Prometheus answers: on the monitor's node, else on this machine."""
    node = inventory.monitor_node
    host = inventory.hosts[node] if node is not None else "127.0.0.1"
    return f"http://{host}:{inventory.monitor.port}"


def all_files(inventory: "Inventory") -> Mapping[str, str]:
    """What Prometheus and Grafana read."""
    return {**prometheus_files(inventory), **grafana_files(url(inventory), inventory.monitor.scrape_seconds)}


def write(folder: Path, files: Mapping[str, str]) -> tuple[Path, ...]:
    """Write those that differ, each whole or not at all; whoever reads the folder meanwhile never sees half of one.

    Returns what was written. Raises ClusterError where the place cannot be written.
    """
    written: list[Path] = []
    for name, text in files.items():
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            same = path.read_bytes() == text.encode()
        except FileNotFoundError:
            same = False
        except OSError as problem:
            raise ClusterError(f"{path}: cannot be written ({problem.strerror}): name another folder") from None
        if not same:
            atomic_write(path, text.encode())
            written.append(path)
    return tuple(written)
