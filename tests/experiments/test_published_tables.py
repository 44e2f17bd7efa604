"""The pages of the published tables are up to date, and ours stand where a file has them."""

import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from experiments.tables import measured, published
from experiments.tables.measured import paper_table, place_of
from experiments.tables.published import pages
from tests.core.inventory.cases import PROJECT
from tests.tables import table

CASES = table("experiments/tables")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of results in the place of the project's."""
    monkeypatch.setattr(measured, "FOLDERS", (tmp_path,))
    measured.trained.cache_clear()
    yield tmp_path
    measured.trained.cache_clear()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_ours_stand_where_a_file_has_them(case: dict[str, Any], folder: Path) -> None:
    for name, content in case["files"].items():
        if isinstance(content, str):
            content = json.loads((PROJECT / content / f"{name}.json").read_text())
        (folder / f"{name}.json").write_text(json.dumps(content))
    for call in case.keys() - {"files"}:
        function, *arguments = call.split()
        module, _, name = function.partition(".")
        make = getattr(import_module(f"experiments.tables.{module}"), name)
        if "raises" in case[call]:
            with pytest.raises(ValueError, match=case[call]["raises"]):
                make(*arguments)
            continue
        table = make(*arguments)
        assert [line for line in case[call].get("lines", ()) if line not in table] == [], table
        assert table.endswith(case[call].get("end", "")), table
        times = case[call].get("times", {})
        assert {text: table.count(text) for text in times} == times, table


def test_the_pages_and_charts_in_the_repository_are_up_to_date() -> None:
    assert {"images/kth-time.svg", "images/kth-accuracy.svg"} < set(pages())
    assert not list(published.stale()), "run `python -m experiments.tables.published --write`"


def test_a_row_is_one_of_the_52_runs_and_another_is_refused() -> None:
    rows = paper_table("thesis-table-16-gpu-3x3-cpu-4x4").rows
    assert len({place_of(16, row) for row in rows}) == len(rows)
    with pytest.raises(ValueError, match="Table 16: no run"):
        place_of(16, {**rows[0], "hidden": 77})


def test_a_page_without_its_marks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("tables.md", "tables-thesis.md", "tables-kimm.md", "kth.md", "results.md"):
        (tmp_path / name).write_text("nothing")
    monkeypatch.setattr(published, "PAGES", tmp_path)
    with pytest.raises(ValueError, match=r"pages/tables\.md: expected a line"):
        pages()
