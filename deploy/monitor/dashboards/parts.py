"""The kinds of panels of all dashboards, made with Grafana's own builders. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import prometheus, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

SOURCE = common.DataSourceRef(type_val="prometheus", uid="${datasource}")
"""The Prometheus that the viewer chooses at the top of the page."""
TAGS = ("pscluster",)
FULL_WIDTH = 24
_HEIGHT = 8
_STAT_HEIGHT = 4


@dataclass(frozen=True)
class Query:
    """One expression with the name of its series."""

    expression: str
    legend: str = "__auto"


Thresholds = Sequence[tuple[float | None, str]]
"""Colours with the value from which each holds; the first has none."""
GOOD_IS_ONE: Thresholds = ((None, "red"), (1, "green"))
GOOD_IS_ZERO: Thresholds = ((None, "green"), (1, "red"))
PLAIN: Thresholds = ((None, "blue"),)


def lines(
    title: str,
    unit: str,
    description: str,
    *queries: Query,
    width: int = FULL_WIDTH // 2,
    stacked: bool = False,
    from_zero: bool = True,
) -> timeseries.Panel:
    """Curves over time."""
    panel = (
        timeseries.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .unit(unit)
        .span(width)
        .height(_HEIGHT)
        .line_width(1)
        .fill_opacity(30 if stacked else 5)
        .show_points(common.VisibilityMode.AUTO)
        .tooltip(
            common_builders.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI).sort(common.SortOrder.DESCENDING)
        )
        .legend(common_builders.VizLegendOptions().show_legend(True).placement(common.LegendPlacement.BOTTOM))
    )
    if from_zero:
        panel.min(0)
    if stacked:
        panel.stacking(common_builders.StackingConfig().mode(common.StackingMode.NORMAL))
    for query in queries:
        panel.with_target(_asked(query).range())
    return panel


def figure(
    title: str, unit: str, description: str, query: Query, *, thresholds: Thresholds = PLAIN, width: int = 4
) -> stat.Panel:
    """One number as it is now; empty where no process exports it any more.

    An instant query: the last value of a range would stay on the page after its job's end.
    """
    return (
        stat.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .unit(unit)
        .span(width)
        .height(_STAT_HEIGHT)
        .graph_mode(common.BigValueGraphMode.NONE)
        .reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]))
        .thresholds(_thresholds(thresholds))
        .with_target(_asked(query).instant())
    )


def words(title: str, description: str, query: Query, label: str, *, width: int = 6) -> stat.Panel:
    """The value of a label, e.g. the name of a run: the series' name instead of its value."""
    named = Query(query.expression, f"{{{{{label}}}}}")
    return figure(title, "string", description, named, width=width).text_mode(common.BigValueTextMode.NAME)


def states(
    title: str, unit: str, description: str, *queries: Query, names: Mapping[str, tuple[str, str]] | None = None
) -> statetimeline.Panel:
    """A bar for each series that changes colour over time; `names` are text and colour of its values."""
    mapping = {value: dashboard.ValueMappingResult(text=text, color=color) for value, (text, color) in _of(names)}
    panel = (
        statetimeline.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .unit(unit)
        .span(FULL_WIDTH)
        .height(_HEIGHT)
        .mappings([dashboard.ValueMap(options=mapping)])
    )
    for query in queries:
        panel.with_target(_asked(query).range())
    return panel


def rows(
    title: str, description: str, by: str, columns: Sequence[tuple[str, str, str]], *, height: int = _HEIGHT + 2
) -> table.Panel:
    """A table with a row for each value of the label `by`; a column is its name, its unit and its expression."""
    panel = (
        table.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .unit("short")
        .span(FULL_WIDTH)
        .height(height)
        .with_transformation(dashboard.DataTransformerConfig(id_val="merge", options={}))
    )
    renamed: dict[str, str] = {}
    for letter, (name, unit, expression) in zip(ascii_uppercase, columns, strict=False):
        renamed[f"Value #{letter}"] = name
        panel.with_target(_asked(Query(expression)).ref_id(letter).format(PromQueryFormat.TABLE).instant())
        panel.override_by_name(name, [dashboard.DynamicConfigValue(id_val="unit", value=unit)])
    options = {"excludeByName": {"Time": True}, "renameByName": {by: by.capitalize(), **renamed}}
    return panel.with_transformation(dashboard.DataTransformerConfig(id_val="organize", options=options))


def _of(names: Mapping[str, tuple[str, str]] | None) -> list[tuple[str, tuple[str, str]]]:
    return list((names or {}).items())


def _asked(query: Query) -> prometheus.Dataquery:
    expression = " ".join(query.expression.split())
    return prometheus.Dataquery().expr(expression).legend_format(query.legend).datasource(SOURCE)


def _thresholds(steps: Thresholds) -> builders.ThresholdsConfig:
    made = [dashboard.Threshold(value=value, color=color) for value, color in steps]
    return builders.ThresholdsConfig().mode(dashboard.ThresholdsMode.ABSOLUTE).steps(made)
