"""What an inventory comes to: overrides, roles, addresses, the shipped files and the recipes."""

from typing import Any

import pytest

from core.inventory import Inventory, TrainJob
from core.inventory.templates import hosts_inventory, local_inventory
from tests.core.inventory.cases import PROJECT, THREE_NODES, edited, machine, read
from tests.shown import part
from tests.tables import table

VALUES = table("core/inventory/values")
FILES = {
    "three": THREE_NODES,
    "thesis": (PROJECT / "inventory.yaml").read_text(encoding="utf-8"),
    "local": (PROJECT / "inventories" / "local.yaml").read_text(encoding="utf-8"),
    "hosts": hosts_inventory("192.168.1.16-31"),
    "many": local_inventory(64),
}


def values(inventory: Inventory) -> dict[str, Any]:
    """The inventory as a result file has it, and what follows from it."""
    tasks = inventory.tasks()
    return {
        **inventory.model_dump(mode="json", by_alias=True),
        "order": inventory.jobs.order,
        "monitor": inventory.monitor_node,
        "service": inventory.service_nodes,
        "roles": {node.name: [entry.role for entry in node.roles] for node in inventory.nodes},
        "tasks": [task.name for task in tasks],
        "addresses": {task.name: task.address for task in tasks},
        "metrics": {task.name: task.metrics_address for task in tasks},
    }


@pytest.mark.parametrize("case", VALUES.values(), ids=VALUES)
def test_what_is_read_has_these_values(case: dict[str, Any]) -> None:
    if "train" in case:
        found = TrainJob.model_validate(case["train"]).model_dump(mode="json", by_alias=True)
    else:
        text = edited(*case.get("change", {}).items(), text=FILES[case.get("file", "three")])
        on = machine(**case.get("machine", {}))
        found = values(read(text, case.get("set", ()), on))
    assert part(found, case["shows"]) == case["shows"]


@pytest.mark.parametrize("file", ["thesis", "local", "hosts", "many"])
@pytest.mark.parametrize("recipe", ["shipped", "thesis"])
def test_a_recipe_comes_whole(file: str, recipe: str) -> None:
    train = read(FILES[file], [f"jobs.train.recipe={recipe}"]).jobs.train
    own = {"recipe": recipe, "epochs": train.epochs, "slots": "auto"}
    assert train == TrainJob.model_validate(own)
