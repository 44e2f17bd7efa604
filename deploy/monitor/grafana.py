"""What Grafana reads when it starts: where Prometheus is, and where the dashboards lie. Pure."""

from deploy.monitor.rule import as_yaml

DASHBOARD_FOLDER = "/var/lib/grafana/dashboards/pscluster"
"""Where the dashboards are to be copied on Grafana's machine; `dashboards.yml` names it."""


def datasource(prometheus_url: str, scrape_seconds: int) -> str:
    """For `/etc/grafana/provisioning/datasources/`."""
    source = {
        "name": "pscluster",
        "type": "prometheus",
        "access": "proxy",
        "url": prometheus_url,
        "jsonData": {"timeInterval": f"{scrape_seconds}s", "httpMethod": "POST"},
    }
    return as_yaml({"apiVersion": 1, "datasources": [source]})


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
    return as_yaml({"apiVersion": 1, "providers": [found]})
