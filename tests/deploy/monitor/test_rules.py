"""Rules that hang together: alerts look at recorded series, have both kinds of case, and a section
of the runbook."""

import re

import pytest
import yaml

from core.inventory import load
from deploy.common.project import ROOT
from deploy.monitor.files import RECORDING_RULES, prometheus_files
from tests.deploy.monitor.expressions import ALERTS, RECORDINGS
from tools.check_rules import INVENTORY, Alert, promtool_tests, read_cases

NAMES = [alert["alert"] for alert in ALERTS]
RUNBOOK = "docs/runbook.md"
TEXT = (ROOT / RUNBOOK).read_text(encoding="utf-8")
SECTIONS = TEXT.split("\n## ")[1:]


def test_names_are_unique_and_recorded_ones_have_a_level_a_metric_and_an_operation() -> None:
    recorded = yaml.safe_load(
        prometheus_files(load(INVENTORY, check_interfaces=False))[RECORDING_RULES]
    )
    assert [rule["record"] for rule in recorded["groups"][0]["rules"]] == list(RECORDINGS)
    assert len(set(NAMES)) == len(NAMES)
    for name in RECORDINGS:
        assert re.fullmatch(r"(process|node|worker|run|cluster):pscluster_\w+:\w+", name), name


def test_what_is_asked_for_was_recorded_before() -> None:
    known: set[str] = set()
    for name, expression in RECORDINGS.items():
        assert set(re.findall(r"\w+:\w+:\w+", expression)) - known <= {name}, name
        known.add(name)


@pytest.mark.parametrize("alert", ALERTS, ids=NAMES)
def test_an_alert_compares_one_recorded_series_with_a_threshold(alert: Alert) -> None:
    """A recorded one: it has values while all is well, so that dashboards and tests see what the
    alert looks at."""
    series, operator, threshold = alert["expr"].split()
    assert series in RECORDINGS
    assert operator in ("==", ">", "<")
    assert threshold in RECORDINGS or float(threshold) >= 0


@pytest.mark.parametrize("alert", ALERTS, ids=NAMES)
def test_an_alert_says_what_to_do_and_has_a_section_of_the_runbook(alert: Alert) -> None:
    assert list(alert) == ["alert", "expr", "for", "labels", "annotations"]
    assert alert["labels"]["severity"] in ("critical", "warning")
    told = alert["annotations"]
    assert told["summary"]
    assert len(told["description"]) > 80
    assert not re.search(r"\s\s|\n", told["description"])
    page, _, place = told["runbook_url"].partition("#")
    assert page == RUNBOOK
    (section,) = (part for part in SECTIONS if anchor(part.splitlines()[0]) == place)
    for word in (f"`{alert['alert']}`", "**It means**", "**Look**", "**Do**"):
        assert word in section


def test_the_runbook_has_no_section_for_an_alert_that_is_gone() -> None:
    assert set(re.findall(r"`(Pscluster\w+)`", TEXT)) == set(NAMES)


def anchor(heading: str) -> str:
    """As Sphinx and GitHub make it."""
    return re.sub(r"[^a-z0-9-]", "", heading.lower().replace(" ", "-"))


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_is_silent() -> None:
    cases = read_cases()
    assert sorted(case["alert"] for case in cases) == sorted(NAMES)
    kinds = {
        group["name"]: bool(group["alert_rule_test"][0]["exp_alerts"])
        for group in promtool_tests(cases, ALERTS)["tests"]
    }
    for name in NAMES:
        assert (kinds[f"{name} fires"], kinds[f"{name} silent"]) == (True, False)


def test_a_case_in_which_nothing_is_expected_to_fire_is_refused() -> None:
    case, *_ = read_cases()
    with pytest.raises(ValueError, match="fires: expected alerts"):
        promtool_tests([{**case, "fires": case["silent"]}], ALERTS)
    with pytest.raises(ValueError, match="silent: expected none"):
        promtool_tests([{**case, "silent": case["fires"]}], ALERTS)
