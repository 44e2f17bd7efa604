"""Rules that hang together: alerts look at recorded series, have both kinds of case, and a section of the runbook."""

import re

import pytest
import yaml

from cluster.inventory import load
from deploy.common.project import ROOT
from deploy.monitor.alerts import ALERTS
from deploy.monitor.files import prometheus_files
from deploy.monitor.recordings import RECORDINGS
from deploy.monitor.rule import RUNBOOK, Alert
from tools.check_rules import INVENTORY, promtool_tests, read_cases

NAMES = [alert.name for alert in ALERTS]


def test_names_are_unique_and_recorded_ones_have_a_level_a_metric_and_an_operation() -> None:
    recorded = [recording.name for recording in RECORDINGS]
    assert len(set(recorded)) == len(recorded)
    assert len(set(NAMES)) == len(NAMES)
    for name in recorded:
        assert re.fullmatch(r"(process|node|worker|run|cluster):pscluster_\w+:\w+", name), name


def test_what_is_asked_for_was_recorded_before() -> None:
    known: set[str] = set()
    for recording in RECORDINGS:
        assert set(re.findall(r"\w+:\w+:\w+", recording.expression)) - known <= {recording.name}, recording.name
        known.add(recording.name)
    assert {alert.series for alert in ALERTS} <= known
    assert {name for alert in ALERTS for name in re.findall(r"\w+:\w+:\w+", alert.comparison)} <= known


@pytest.mark.parametrize("alert", ALERTS, ids=NAMES)
def test_an_alert_says_what_to_do_and_where_to_read_on(alert: Alert) -> None:
    assert alert.summary
    assert len(alert.annotations["description"]) > 80
    assert alert.annotations["runbook_url"] == f"{RUNBOOK}#{alert.anchor}"
    assert not re.search(r"\s\s|\n", alert.annotations["description"])


@pytest.mark.parametrize("alert", ALERTS, ids=NAMES)
def test_the_runbook_has_a_section_for_it(alert: Alert) -> None:
    text = (ROOT / RUNBOOK).read_text(encoding="utf-8")
    heading = next(part for part in text.split("\n## ")[1:] if anchor(part.splitlines()[0]) == alert.anchor)
    assert f"`{alert.name}`" in heading
    for word in ("**It means**", "**Look**", "**Do**"):
        assert word in heading


def test_the_runbook_has_no_section_for_an_alert_that_is_gone() -> None:
    text = (ROOT / RUNBOOK).read_text(encoding="utf-8")
    assert set(re.findall(r"`(Pscluster\w+)`", text)) == set(NAMES)


def anchor(heading: str) -> str:
    """As Sphinx and GitHub make it."""
    return re.sub(r"[^a-z0-9-]", "", heading.lower().replace(" ", "-"))


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_is_silent() -> None:
    cases = read_cases()
    assert sorted(case["alert"] for case in cases) == sorted(NAMES)
    made = promtool_tests(cases, ALERTS)
    for name in NAMES:
        kinds = {group["name"]: group["alert_rule_test"][0]["exp_alerts"] for group in made["tests"]}
        assert kinds[f"{name} fires"]
        assert kinds[f"{name} silent"] == []


def test_promtool_evaluates_what_is_recorded_before_the_alerts() -> None:
    made, files = promtool_tests(read_cases(), ALERTS), prometheus_files(load(INVENTORY, check_interfaces=False))
    groups = [yaml.safe_load(files[name])["groups"] for name in made["rule_files"]]
    assert made["group_eval_order"] == [group["name"] for (group,) in groups]
    assert "record" in groups[0][0]["rules"][0]


def test_a_case_in_which_nothing_is_expected_to_fire_is_refused() -> None:
    (case, *_) = read_cases()
    with pytest.raises(ValueError, match="fires: expected alerts"):
        promtool_tests([{**case, "fires": case["silent"]}], ALERTS)
    with pytest.raises(ValueError, match="silent: expected none"):
        promtool_tests([{**case, "silent": case["fires"]}], ALERTS)
