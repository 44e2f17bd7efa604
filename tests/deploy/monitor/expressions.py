"""The expressions of rules and of dashboards, these with what Grafana would put in for their
variables."""

from typing import Any

from deploy.monitor.files import ALERT_RULES, RECORDING_RULES, rule_group

RATE_INTERVAL = "$__rate_interval"
RECORDINGS: dict[str, str] = {
    rule["record"]: rule["expr"] for rule in rule_group(RECORDING_RULES)["rules"]
}
"""Expressions by the names of the recorded series, in the order of the file."""
ALERTS: list[dict[str, Any]] = rule_group(ALERT_RULES)["rules"]

SERVICE = "pscluster_service"
"""What a service exports, or what is made of it; the roles of a cluster export the rest."""


def panels_of(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    """Those that show something: all but the headings."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def expressions_of(dashboard: dict[str, Any]) -> list[tuple[str, str]]:
    """Where an expression stands, and it."""
    title = dashboard["title"]
    found = [
        (f"{title}: {panel['title']} {target['refId']}", target["expr"])
        for panel in panels_of(dashboard)
        for target in panel["targets"]
    ]
    annotations = dashboard["annotations"]["list"]
    return [*found, *((f"{title}: annotation {one['name']}", one["expr"]) for one in annotations)]


def filled_in(expression: str, cluster: str, node: str, rate_interval: str) -> str:
    """As Grafana sends it."""
    for variable, value in ((RATE_INTERVAL, rate_interval), ("$cluster", cluster), ("$node", node)):
        expression = expression.replace(variable, value)
    return expression
