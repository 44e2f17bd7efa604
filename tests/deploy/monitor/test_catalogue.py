"""What rules and dashboards ask for is exported by somebody, and labels have the values they are
asked for."""

import json
import re

from core.metrics.catalogue import CATALOGUE
from deploy.monitor.files import dashboards
from tests.deploy.monitor.expressions import RECORDINGS, expressions_of

METRICS = {
    metric.name + part: metric
    for metric in CATALOGUE
    for part in (("_bucket", "_sum", "_count") if metric.buckets else ("",))
}
TARGET_LABELS = {"cluster", "node", "process", "job", "instance", "le", "__name__"}
EXPRESSIONS = [
    *RECORDINGS.items(),
    *(one for text in dashboards().values() for one in expressions_of(json.loads(text))),
]


def asked_for(expression: str) -> set[str]:
    """Names of metrics; recorded series, which have colons, apart."""
    plain = re.sub(r"[a-z]+:pscluster_\w+:\w+", "", expression)
    return set(re.findall(r"\bpscluster_\w+", plain))


def test_every_metric_is_in_the_catalogue() -> None:
    unknown = {where: asked_for(expression) - METRICS.keys() for where, expression in EXPRESSIONS}
    assert {where: names for where, names in unknown.items() if names} == {}


def test_every_label_and_value_is_one_the_metric_has() -> None:
    looked_at = 0
    for where, expression in EXPRESSIONS:
        for name, selector in re.findall(r"(?<![:\w])(pscluster_\w+)\{([^}]*)\}", expression):
            for label, operator, value in re.findall(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"', selector):
                if label in TARGET_LABELS:
                    continue
                assert label in METRICS[name].label_names, (where, label)
                values = METRICS[name].labels.get(label, ())
                if values:
                    assert set(value.split("|")) <= set(values), (where, label, value, operator)
                looked_at += 1
    assert looked_at > 5


def test_nothing_is_exported_that_nobody_looks_at() -> None:
    used = {name for _, expression in EXPRESSIONS for name in asked_for(expression)}
    families = {METRICS[name].name for name in used}
    assert {metric.name for metric in CATALOGUE} - families == set()


def test_no_pace_is_made_of_a_counter_that_is_told_in_jumps() -> None:
    """Between two jumps it would be nothing, and at each many times too much."""
    seldom = {
        metric.name
        for metric in CATALOGUE
        if re.search("latest epoch|end of each stretch", metric.help)
    }
    seldom = {name for name in seldom if METRICS[name].kind == "counter"}
    assert len(seldom) == 3
    for where, expression in EXPRESSIONS:
        assert not seldom & set(
            re.findall(r"(?:rate|increase|delta)\((pscluster_\w+)", expression)
        ), where


def test_panels_are_of_the_chosen_cluster_and_name_series_as_they_are_recorded() -> None:
    for text in dashboards().values():
        for where, expression in expressions_of(json.loads(text)):
            for selector in re.findall(r"pscluster_[\w:]+(\{[^}]*\})?", expression):
                assert 'cluster="$cluster"' in selector, where
            assert set(re.findall(r"\w+:\w+:\w+", expression)) <= set(RECORDINGS), where
