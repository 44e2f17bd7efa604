"""docs/inventory.md says what the schema says."""

import pytest

from core.inventory.schema import InventoryFile
from core.inventory.schema_keys import everywhere
from tests.core.inventory.cases import PROJECT
from tools import extension_tables
from tools.inventory_reference import PAGE, main, render_reference


def test_the_page_in_the_repository_is_up_to_date() -> None:
    assert (PROJECT / PAGE).read_text(encoding="utf-8") == render_reference(), (
        "run `python -m tools.inventory_reference --write`"
    )


def test_the_tables_of_extensions_are_up_to_date() -> None:
    for name, page in extension_tables.pages().items():
        assert (PROJECT / "docs" / name).read_text(encoding="utf-8") == page, (
            "run `python -m tools.extension_tables --write`"
        )


def test_every_key_has_a_row_with_a_meaning() -> None:
    rows = [line for line in render_reference().splitlines() if line.startswith("| `")]

    for key, section in everywhere(InventoryFile):
        mine = [row for row in rows if row.startswith(f"| `{key}` |")]
        assert mine, f"{section}: {key}"
        assert all(cell.strip() for row in mine for cell in row.split(" | ")), mine


def test_the_page_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0

    assert capsys.readouterr().out == render_reference()
