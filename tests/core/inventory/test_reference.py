"""docs/inventory.md says what the schema says."""

import pytest

from core.inventory.schema import InventoryFile
from core.inventory.schema_keys import everywhere
from tools.inventory_reference import main, render_reference


def test_every_key_has_a_row_with_a_meaning() -> None:
    rows = [line for line in render_reference().splitlines() if line.startswith("| `")]

    for key, section in everywhere(InventoryFile):
        mine = [row for row in rows if row.startswith(f"| `{key}` |")]
        assert mine, f"{section}: {key}"
        assert all(cell.strip() for row in mine for cell in row.split(" | ")), mine


def test_the_page_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0

    assert capsys.readouterr().out == render_reference()
