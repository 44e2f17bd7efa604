"""What a process pays for the inventory: as little as it uses."""

import pytest

from tests.ran import python


def loaded_after(statement: str) -> set[str]:
    """Modules that a fresh interpreter has after the statement."""
    return set(python("-c", f"import sys\n{statement}\nprint(*sys.modules)").split())


def test_a_task_costs_neither_pydantic_nor_yaml() -> None:
    assert not {"pydantic", "yaml", "netifaces"} & loaded_after(
        "from core.inventory import Task, InventoryError"
    )


def test_reading_an_inventory_needs_little() -> None:
    heavy = {"tensorflow", "numpy", "scipy", "rich", "fabric", "netifaces", "asyncio"}
    assert not heavy & loaded_after(
        "from core.inventory import load; load('inventories/local.yaml')"
    )


def test_every_public_name_can_be_imported() -> None:
    import core.inventory as room

    assert all(getattr(room, name) is not None for name in room.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        room.Nothing  # noqa: B018
