"""The thesis's figures stand in the docs as they are in its tables, and nothing is said that it does not say."""

import re

import pytest

from cluster.pages.pi_times import MILLION, PI_SECONDS, PIS, is_in_table_5, pi_seconds
from cluster.references.tables import own_table
from deploy.common.project import ROOT

TABLE_21 = own_table("thesis-table-21-pis-xeon").rows
PAGE = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
SAID = ("docs/performance.md", "docs/results.md", "docs/report.md", "docs/tables.md", "docs/tables-thesis.md",
        "cluster/references/published/thesis-table-05-pi-seconds.json", "inventory.yaml", "benchmarks/pis.py",
        "benchmarks/pi.py", "cluster/pages/pi_times.py", "cluster/pages/templates/compare.html")  # fmt: skip


def test_table_5_stands_beside_ours_cell_by_cell() -> None:
    section = PAGE[PAGE.index("### Pi, beside the thesis's Table 5") :]
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", section.partition("![")[0], re.MULTILINE)
    assert [int(millions) * MILLION for millions, _ in rows] == list(PI_SECONDS)
    for millions, cells in rows:
        theirs = cells.split(" | ")[1::2]
        for shown, seconds in zip(theirs, PI_SECONDS[int(millions) * MILLION], strict=True):
            assert shown == ("N/A" if seconds is None else f"{seconds:.2f} s")


def test_table_21_stands_there_too() -> None:
    half = len(TABLE_21) // 2
    for pis, xeon in zip(TABLE_21[:half], TABLE_21[half:], strict=True):
        assert pis["hidden"] == xeon["hidden"]
        cells = [f"{row['time']} | {row['accuracy']:.4f}" for row in (pis, xeon)]
        slower = float(str(pis["seconds"])) / float(str(xeon["seconds"]))
        assert f"| {pis['hidden']} | {cells[0]} | {cells[1]} | {slower:.2f} |" in PAGE


@pytest.mark.parametrize("file", SAID)
def test_no_reason_is_given_that_the_thesis_does_not_give(file: str) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")
    for line in text.splitlines():
        assert not ("thesis" in line and re.search(r"(?:out of|without) memory", line)), line
    assert "not\nin our sources" not in text
    assert "known to us only" not in text


def test_a_cell_that_is_not_there_is_not_n_a() -> None:
    assert pi_seconds(70 * MILLION, 1) is None
    assert is_in_table_5(70 * MILLION, 1)
    assert not is_in_table_5(1000 * MILLION, 1)
    assert not is_in_table_5(10 * MILLION, 3)
    assert pi_seconds(100 * MILLION, 16) == 2.611
    assert all(len(row) == len(PIS) for row in PI_SECONDS.values())
