"""docs/inventory.md says what the schema says."""

from core.inventory.schema import InventoryFile
from core.inventory.schema_keys import everywhere
from tools.inventory_reference import render_reference


def test_every_key_has_a_heading_or_a_row_with_a_meaning() -> None:
    lines = render_reference().splitlines()
    rows = [line for line in lines if line.startswith("- `")]
    headings = [line.split("`")[1] for line in lines if line.startswith("## `")]
    sections = {heading.rpartition(".")[2] for heading in headings}

    for key, section in everywhere(InventoryFile):
        mine = [row for row in rows if row.startswith(f"- `{key}` (")]
        assert mine or key in sections, f"{section}: {key}"
        assert all(row.partition("): ")[2] for row in mine), mine
