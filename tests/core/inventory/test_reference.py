"""docs/inventory.md says what the schema says."""

from core.inventory.schema import InventoryFile
from core.inventory.schema_keys import everywhere
from tools.inventory_reference import render_reference


def test_every_key_has_a_row_with_a_meaning() -> None:
    rows = [line for line in render_reference().splitlines() if line.startswith("| `")]

    for key, section in everywhere(InventoryFile):
        mine = [row for row in rows if row.startswith(f"| `{key}` |")]
        assert mine, f"{section}: {key}"
        assert all(cell.strip() for row in mine for cell in row.split(" | ")), mine
