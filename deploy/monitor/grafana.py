"""Grafana's dashboards as JSON: `dashboards/`, built with `grafana-foundation-sdk`.

A file has the dashboard's title and its sections of panels. `kind` names the class of a panel here;
its other keys are the fields of this class. Expressions are Prometheus's, with Grafana's variables.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from string import ascii_uppercase
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import yaml
from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import prometheus, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models.prometheus import PromQueryFormat
from pydantic import BaseModel, ConfigDict, Field

FILES = Path(__file__).with_name("dashboards")
SOURCE = common.DataSourceRef(type_val="prometheus", uid="${datasource}")
"""The Prometheus that the viewer chooses at the top of the page."""
TAG = "pscluster"
FULL_WIDTH = 24

Made = TypeVar("Made", timeseries.Panel, stat.Panel, statetimeline.Panel, table.Panel)


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Panel(_Model):
    title: str
    description: str
    unit: str
    """One of Grafana's."""
    width: int = FULL_WIDTH
    height: ClassVar[int] = 8

    def _framed(self, made: Made) -> Made:
        made.title(self.title).description(self.description).datasource(SOURCE).unit(self.unit)
        made.span(self.width).height(self.height)
        return made


class TimeSeriesPanel(_Panel):
    """Curves over time; `queries` are expressions by the names of their series."""

    kind: Literal["lines"]
    width: int = FULL_WIDTH // 2
    stacked: bool = False
    from_zero: bool = True
    queries: dict[str, str]

    def built(self) -> timeseries.Panel:
        """The panel for Grafana."""
        tooltip = common_builders.VizTooltipOptions()
        legend = common_builders.VizLegendOptions()
        panel = (
            self._framed(timeseries.Panel())
            .line_width(1)
            .fill_opacity(30 if self.stacked else 5)
            .show_points(common.VisibilityMode.AUTO)
            .tooltip(
                tooltip.mode(common.TooltipDisplayMode.MULTI).sort(common.SortOrder.DESCENDING)
            )
            .legend(legend.show_legend(True).placement(common.LegendPlacement.BOTTOM))
        )
        if self.from_zero:
            panel.min(0)
        if self.stacked:
            panel.stacking(common_builders.StackingConfig().mode(common.StackingMode.NORMAL))
        for legend_format, query in self.queries.items():
            panel.with_target(_target(query, legend_format).range())
        return panel


class _Number(_Panel):
    width: int = 4
    height: ClassVar[int] = 4
    thresholds: dict[Literal["base"] | int | float, str] = {"base": "blue"}
    """Colours by the value from which each holds; that of `base` holds below all others."""
    query: str

    def _stat(self, legend: str = "__auto") -> stat.Panel:
        # An instant query: the last value of a range would stay on the page after its job's end.
        steps = [
            dashboard.Threshold(value=None if value == "base" else value, color=color)
            for value, color in self.thresholds.items()
        ]
        return (
            self._framed(stat.Panel())
            .graph_mode(common.BigValueGraphMode.NONE)
            .reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]))
            .thresholds(
                builders.ThresholdsConfig().mode(dashboard.ThresholdsMode.ABSOLUTE).steps(steps)
            )
            .with_target(_target(self.query, legend).instant())
        )


class NumberPanel(_Number):
    """One number as it is now; empty where no process exports it any more."""

    kind: Literal["figure"]

    def built(self) -> stat.Panel:
        """The panel for Grafana."""
        return self._stat()


class LabelText(_Number):
    """The value of a label, e.g. the name of a run: the series' name instead of its value."""

    kind: Literal["words"]
    unit: str = "string"
    width: int = 6
    label: str

    def built(self) -> stat.Panel:
        """The panel for Grafana."""
        return self._stat(f"{{{{{self.label}}}}}").text_mode(common.BigValueTextMode.NAME)


class Value(_Model):
    """What stands for a value of a series."""

    text: str
    color: str


class States(_Panel):
    """A bar for each series that changes colour over time."""

    kind: Literal["states"]
    values: dict[int, Value]
    queries: dict[str, str]

    def built(self) -> statetimeline.Panel:
        """The panel for Grafana."""
        mapping = {
            str(value): dashboard.ValueMappingResult(text=shown.text, color=shown.color)
            for value, shown in self.values.items()
        }
        panel = self._framed(statetimeline.Panel()).mappings([dashboard.ValueMap(options=mapping)])
        for legend, query in self.queries.items():
            panel.with_target(_target(query, legend).range())
        return panel


class Column(_Model):
    """A column of a table."""

    name: str
    unit: str
    query: str


class TablePanel(_Panel):
    """A table with a row for each value of the label `by`."""

    kind: Literal["rows"]
    unit: str = "short"
    height: ClassVar[int] = 10
    by: str
    columns: list[Column]

    def built(self) -> table.Panel:
        """The panel for Grafana."""
        panel = self._framed(table.Panel())
        panel.with_transformation(dashboard.DataTransformerConfig(id_val="merge", options={}))
        renamed = {self.by: self.by.capitalize()}
        for letter, column in zip(ascii_uppercase, self.columns, strict=False):
            renamed[f"Value #{letter}"] = column.name
            panel.with_target(
                _target(column.query).ref_id(letter).format(PromQueryFormat.TABLE).instant()
            )
            panel.override_by_name(
                column.name, [dashboard.DynamicConfigValue(id_val="unit", value=column.unit)]
            )
        options = {"excludeByName": {"Time": True}, "renameByName": renamed}
        return panel.with_transformation(
            dashboard.DataTransformerConfig(id_val="organize", options=options)
        )


class PanelGroup(_Model):
    """A heading and the panels below it."""

    heading: str
    panels: list[
        Annotated[
            TimeSeriesPanel | NumberPanel | LabelText | States | TablePanel,
            Field(discriminator="kind"),
        ]
    ]


class DashboardPage(_Model):
    """A dashboard; `nodes` says how many nodes the viewer can choose."""

    title: str
    description: str
    nodes: Literal["none", "one", "many"] = "none"
    sections: list[PanelGroup]


def dashboards() -> Mapping[str, str]:
    """Return every dashboard as JSON by the name of its file, with a number for each panel.

    The JSON has no ids, which belong to one Grafana.
    """
    return {f"pscluster-{path.stem}.json": _as_json(path) for path in sorted(FILES.glob("*.yaml"))}


def _as_json(path: Path) -> str:
    page = DashboardPage.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    content: dict[str, Any] = json.loads(
        json.dumps(_built(f"pscluster-{path.stem}", page), cls=JSONEncoder)
    )
    for number, panel in enumerate(content["panels"], start=1):
        panel["id"] = number
        for letter, target in zip(ascii_uppercase, panel.get("targets", ()), strict=False):
            target.setdefault("refId", letter)
    content.pop("id", None)
    content["version"] = 1
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


def _built(uid: str, page: DashboardPage) -> dashboard.Dashboard:
    made = (
        builders.Dashboard(page.title)
        .uid(uid)
        .description(page.description)
        .tags([TAG])
        .timezone("browser")
        .refresh("10s")
        .time("now-30m", "now")
        .tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
        .editable()
        .with_variable(
            builders.DatasourceVariable("datasource").label("Prometheus").type("prometheus")
        )
        .with_variable(
            _variable("cluster", "Cluster", "label_values(pscluster_build_info, cluster)")
        )
        .annotation(_annotation("Starts", "orange", STARTS, "{{process}} on {{node}} started"))
        .annotation(_annotation("Checkpoints", "blue", CHECKPOINTS, "checkpoint"))
        .link(
            builders.DashboardLink("pscluster")
            .type(dashboard.DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .as_dropdown(True)
            .include_vars(True)
            .keep_time(True)
        )
    )
    if page.nodes != "none":
        choice = _variable(
            "node", "Node", 'label_values(pscluster_build_info{cluster="$cluster"}, node)'
        )
        made.with_variable(
            choice if page.nodes == "one" else choice.multi(True).include_all(True).all_value(".*")
        )
    for section in page.sections:
        made.with_row(builders.Row(section.heading))
        for panel in section.panels:
            made.with_panel(panel.built())
    return made.build()


def _changed(labels: str, series: str) -> str:
    """Where the timestamp that a process exports differs from its previous one of the last hour.

    It compares with a moment before Grafana's previous sample: `changes` would miss a process that
    was down at that moment. A lost scrape does not count as a change.
    """
    now = f"max by ({labels}) ({series})"
    return (
        f"{now} unless ({now} == max by ({labels}) (last_over_time({series}[1h] offset"
        " $__rate_interval)))"
    )


STARTS = _changed(
    "cluster, node, process",
    'pscluster_process_start_time_seconds{cluster="$cluster", role!="coordinator"}',
)
CHECKPOINTS = _changed(
    "cluster", 'pscluster_train_checkpoint_last_success_timestamp_seconds{cluster="$cluster"}'
)


def _target(query: str, legend: str = "__auto") -> prometheus.Dataquery:
    return prometheus.Dataquery().expr(query).legend_format(legend).datasource(SOURCE)


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
