"""No page says about the thesis's figures what the thesis does not say."""

import re

import pytest

from cluster.pages.pi_times import MILLION, PI_SECONDS, PIS, is_in_table_5, pi_seconds
from deploy.common.project import ROOT

SAID = (
    "docs/performance.md",
    "docs/results.md",
    "docs/report.md",
    "docs/tables.md",
    "docs/tables-thesis.md",
    "cluster/references/published/thesis-table-05-pi-seconds.json",
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


def test_a_cell_that_is_not_there_is_not_n_a() -> None:
    assert pi_seconds(70 * MILLION, 1) is None
    assert is_in_table_5(70 * MILLION, 1)
    assert not is_in_table_5(1000 * MILLION, 1)
    assert not is_in_table_5(10 * MILLION, 3)
    assert pi_seconds(100 * MILLION, 16) == 2.611
    assert all(len(row) == len(PIS) for row in PI_SECONDS.values())
