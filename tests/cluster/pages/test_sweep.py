"""The page of a sweep from small files: means and spreads, charts, hostile texts."""

from pathlib import Path
from typing import Any

import pytest

from cluster.pages import __main__ as command
from cluster.pages import leave_report
from cluster.pages.files import read_sweep
from cluster.pages.sweep import sweep_page
from core.ground.errors import UsageError
from tests.cluster.pages.elements import Elements, shows
from tests.cluster.pages.sweeps import CASES, EXAMPLES, left
from tests.tables import table


@pytest.mark.parametrize("name", CASES)
def test_it_is_one_file_that_asks_nobody_for_anything_and_shows_this(
    name: str, tmp_path: Path
) -> None:
    text = sweep_page(left(tmp_path, EXAMPLES[name]))
    Elements(text).asks_nobody()
    shows(text, CASES[name])


@pytest.mark.parametrize("name", CASES)
def test_a_sweep_without_axes_varies_what_its_runs_set(name: str, tmp_path: Path) -> None:
    stored = EXAMPLES[name]
    alone = read_sweep(left(tmp_path / "alone", {**stored, "axes": []}))
    assert alone.varied == read_sweep(left(tmp_path / "with", stored)).axes


@pytest.mark.parametrize("change", table("cluster/pages/rows", "no sweep"))
def test_a_broken_file_is_one_line(change: Any, tmp_path: Path) -> None:
    left(tmp_path, {**EXAMPLES["words"], **change} if isinstance(change, dict) else change)
    with pytest.raises(UsageError, match="expected what `fab sweep` writes") as refused:
        sweep_page(tmp_path)
    assert len(str(refused.value).splitlines()) == 1


def test_a_sweeps_job_leaves_the_page_as_its_report_and_the_command_knows_it_by_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = left(tmp_path / "20260131T120000Z-widths", EXAMPLES["thesis"])
    leave_report(folder, dict)
    found = (folder / "report.html").read_text()
    assert "Sweep widths" in found
    there = tmp_path / "there.html"
    assert command.main(["--run", str(folder), "--out", str(there)]) == 0
    assert capsys.readouterr().out == f"report: {there}\n"
    assert there.read_text() == found
    with pytest.raises(UsageError, match=r"no sweep\.json in it"):
        sweep_page(tmp_path)
