"""What a process pays for the inventory: as little as it uses."""

import subprocess
import sys

import pytest

from tests.inventory.cases import PROJECT


def loaded_after(statement: str) -> set[str]:
    """Modules that a fresh interpreter has after the statement."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{statement}\nprint(*sys.modules)"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return set(done.stdout.split())


def test_a_task_costs_neither_pydantic_nor_yaml() -> None:
    assert not {"pydantic", "yaml", "netifaces"} & loaded_after("from cluster.inventory import Task, InventoryError")


@pytest.mark.parametrize("unwanted", ["tensorflow", "numpy", "scipy", "rich", "fabric", "netifaces", "asyncio"])
def test_reading_an_inventory_needs_little(unwanted: str) -> None:
    assert unwanted not in loaded_after("from cluster.inventory import load; load('inventories/local.yaml')")


def test_every_public_name_can_be_imported() -> None:
    import cluster.inventory as room

    assert all(getattr(room, name) is not None for name in room.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        room.Nothing  # noqa: B018
