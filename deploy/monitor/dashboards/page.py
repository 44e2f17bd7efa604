"""The frame of a dashboard: variables, annotations, links, and its JSON. Pure."""

import json
from collections.abc import Sequence
from string import ascii_uppercase
from typing import Any, Literal

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog import builder as cog
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard

from deploy.monitor.dashboards.parts import SOURCE, TAGS

Panel = cog.Builder[dashboard.Panel]
Nodes = Literal["none", "one", "many"]
Section = tuple[str, Sequence[Panel]]
"""A heading and the panels below it."""


def _changed(labels: str, series: str) -> str:
    """Where the timestamp that a process exports differs from its previous one of the last hour.

    It compares with a moment before Grafana's previous sample: `changes` would miss a process that was down at that
    moment. A lost scrape does not count as a change.
    """
    now = f"max by ({labels}) ({series})"
    return f"{now} unless ({now} == max by ({labels}) (last_over_time({series}[1h] offset $__rate_interval)))"


STARTS = _changed(
    "cluster, node, process", 'pscluster_process_start_time_seconds{cluster="$cluster", role!="coordinator"}'
)
CHECKPOINTS = _changed("cluster", 'pscluster_train_checkpoint_last_success_timestamp_seconds{cluster="$cluster"}')


def page(uid: str, title: str, description: str, sections: Sequence[Section], *, nodes: Nodes = "none") -> str:
    """The dashboard as JSON; `nodes` says how many nodes the viewer can choose."""
    made = (
        builders.Dashboard(title)
        .uid(uid)
        .description(description)
        .tags([*TAGS])
        .timezone("browser")
        .refresh("10s")
        .time("now-30m", "now")
        .tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
        .editable()
        .with_variable(builders.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
        .with_variable(_variable("cluster", "Cluster", "label_values(pscluster_build_info, cluster)"))
        .annotation(_annotation("Starts", "orange", STARTS, "{{process}} on {{node}} started"))
        .annotation(_annotation("Checkpoints", "blue", CHECKPOINTS, "checkpoint"))
        .link(_links())
    )
    if nodes != "none":
        made.with_variable(_choice_of(nodes))
    for heading, panels in sections:
        made.with_row(builders.Row(heading))
        for panel in panels:
            made.with_panel(panel)
    return as_text(made.build())


def as_text(made: dashboard.Dashboard) -> str:
    """JSON with a number for each panel, which the builders omit, and without the ids of one Grafana."""
    content: dict[str, Any] = json.loads(json.dumps(made, cls=JSONEncoder))
    for number, panel in enumerate(content["panels"], start=1):
        panel["id"] = number
        for letter, target in zip(ascii_uppercase, panel.get("targets", ()), strict=False):
            target.setdefault("refId", letter)
    content.pop("id", None)
    content["version"] = 1
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


def _variable(name: str, label: str, query: str) -> builders.QueryVariable:
    return (
        builders.QueryVariable(name)
        .label(label)
        .datasource(SOURCE)
        .query({"query": query, "refId": f"variable-{name}"})
        .definition(query)
        .refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(dashboard.VariableSort.ALPHABETICAL_ASC)
    )


def _choice_of(nodes: Nodes) -> builders.QueryVariable:
    query = 'label_values(pscluster_build_info{cluster="$cluster"}, node)'
    variable = _variable("node", "Node", query)
    return variable if nodes == "one" else variable.multi(True).include_all(True).all_value(".*")


def _annotation(name: str, color: str, expression: str, words: str) -> builders.AnnotationQuery:
    return (
        builders.AnnotationQuery()
        .name(name)
        .datasource(SOURCE)
        .enable(True)
        .icon_color(color)
        .expr(expression)
        .title_format(words)
        .tag_keys("node,process")
    )


def _links() -> builders.DashboardLink:
    return (
        builders.DashboardLink("pscluster")
        .type(dashboard.DashboardLinkType.DASHBOARDS)
        .tags([*TAGS])
        .as_dropdown(True)
        .include_vars(True)
        .keep_time(True)
    )
