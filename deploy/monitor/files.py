"""The files that Prometheus and Grafana read, by their paths in one folder."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from cluster.atomic_write import atomic_write
from cluster.errors import ClusterError

if TYPE_CHECKING:
    from cluster.inventory import Inventory


JOB = "pscluster"
CONFIGURATION = "prometheus.yml"
RULES = "rules/*.yml"
TARGETS = "targets/*.json"
RECORDING_RULES, ALERT_RULES = "rules/pscluster-recording.yml", "rules/pscluster-alerts.yml"
"""Here in Prometheus's own format, and in the folder with the interval of the inventory."""
CLUSTER_TARGETS = "targets/pscluster-{cluster}.json"
DASHBOARD_FOLDER = "/var/lib/grafana/dashboards/pscluster"
"""The folder for the dashboards on Grafana's machine; `dashboards.yml` names it."""


def rule_group(name: str) -> dict[str, Any]:
    """The one group in RECORDING_RULES or ALERT_RULES, as Prometheus reads it but for its interval."""
    (group,) = yaml.safe_load((Path(__file__).parent / name).read_text(encoding="utf-8"))["groups"]
    return dict(group)


def _rules(name: str, every_seconds: int) -> str:
    group = rule_group(name)
    return _as_yaml({"groups": [{"name": group["name"], "interval": f"{every_seconds}s", "rules": group["rules"]}]})


def _as_yaml(content: object) -> str:
    text: str = yaml.safe_dump(content, sort_keys=False, width=1000, allow_unicode=True)
    return f"# Written by pscluster from the inventory; `fab deploy monitor` replaces changes made here.\n{text}"


def configuration(inventory: "Inventory") -> str:
    """`prometheus.yml`: every process of the cluster, and the rules. Paths are relative to the file itself."""
    seconds = inventory.monitor.scrape_seconds
    return _as_yaml(
        {
            "global": {
                "scrape_interval": f"{seconds}s",
                # A node that trains may take seconds to answer; at most until the next scrape.
                "scrape_timeout": f"{min(seconds, 10)}s",
                "evaluation_interval": f"{seconds}s",
            },
            "rule_files": [RULES],
            "scrape_configs": [{"job_name": JOB, "file_sd_configs": [{"files": [TARGETS]}]}],
        }
    )


def targets(inventory: "Inventory") -> str:
    """The metrics ports of all role processes, and the coordinator's, which answers while a job runs.

    The labels say where a target is. `role` and `task` are labels of the metrics themselves, because the coordinator
    reports on all workers.
    """
    entries = [
        {
            "targets": [task.metrics_address],
            "labels": {"cluster": inventory.cluster, "node": task.node, "process": task.name},
        }
        for task in inventory.tasks()
    ]
    return json.dumps(entries, indent=2) + "\n"


def datasource(prometheus_url: str, scrape_seconds: int) -> str:
    """For `/etc/grafana/provisioning/datasources/`."""
    source = {
        "name": "pscluster",
        "type": "prometheus",
        "access": "proxy",
        "url": prometheus_url,
        "jsonData": {"timeInterval": f"{scrape_seconds}s", "httpMethod": "POST"},
    }
    return _as_yaml({"apiVersion": 1, "datasources": [source]})


def provider() -> str:
    """For `/etc/grafana/provisioning/dashboards/`."""
    found = {
        "name": "pscluster",
        "folder": "pscluster",
        "type": "file",
        "disableDeletion": False,
        "allowUiUpdates": True,
        "updateIntervalSeconds": 30,
        "options": {"path": DASHBOARD_FOLDER},
    }
    return _as_yaml({"apiVersion": 1, "providers": [found]})


def prometheus_files(inventory: "Inventory") -> Mapping[str, str]:
    """The files of Prometheus. All clusters have the same rules; each cluster has its own file of targets."""
    seconds = inventory.monitor.scrape_seconds
    return {
        CLUSTER_TARGETS.format(cluster=inventory.cluster): targets(inventory),
        RECORDING_RULES: _rules(RECORDING_RULES, seconds),
        ALERT_RULES: _rules(ALERT_RULES, seconds),
        CONFIGURATION: configuration(inventory),
    }


def grafana_files(prometheus_url: str, scrape_seconds: int) -> Mapping[str, str]:
    """The files of Grafana."""
    from deploy.monitor.grafana import dashboards  # only this function needs the library

    return {
        "grafana/provisioning/datasources/pscluster.yml": datasource(prometheus_url, scrape_seconds),
        "grafana/provisioning/dashboards/pscluster.yml": provider(),
        **{f"grafana/dashboards/{name}": text for name, text in dashboards().items()},
    }


def url(inventory: "Inventory") -> str:
    """The address of the cluster's Prometheus: on the monitor's node, else on this machine."""
    node = inventory.monitor_node
    host = inventory.hosts[node] if node is not None else "127.0.0.1"
    return f"http://{host}:{inventory.monitor.port}"


def all_files(inventory: "Inventory") -> Mapping[str, str]:
    """All files of the folder."""
    return {**prometheus_files(inventory), **grafana_files(url(inventory), inventory.monitor.scrape_seconds)}


def write(folder: Path, files: Mapping[str, str]) -> tuple[Path, ...]:
    """Write the files that differ, each atomically.

    Returns the paths of the written files. Raises ClusterError where one cannot be written.
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
