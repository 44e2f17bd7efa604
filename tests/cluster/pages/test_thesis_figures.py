"""No page says about the thesis's figures what the thesis does not say."""

import re

import pytest

from deploy.common.project import ROOT

SAID = (
    "docs/performance.md",
    "docs/results.md",
    "docs/report.md",
    "docs/tables.md",
    "docs/tables-thesis.md",
    "experiments/tables/papers/thesis-table-05-pi-seconds.json",
    "inventory.yaml",
    "benchmarks/pi.py",
    "cluster/pages/pi_times.py",
    "cluster/pages/templates/compare.html",
)


@pytest.mark.parametrize("file", SAID)
def test_no_reason_is_given_that_the_thesis_does_not_give(file: str) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")
    reasons = re.findall(r".*(?:out of|without) memory.*", text)
    assert [line for line in reasons if "thesis" in line] == []
    assert "not\nin our sources" not in text
    assert "known to us only" not in text
