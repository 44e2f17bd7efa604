"""The recipes, and the values an inventory's own keys have over them."""

from typing import Any

import pytest

from core.inventory import TrainJob
from core.inventory.training_sections import RECIPES, apart_from_recipe
from experiments.tables.measured import paper_table
from tests.tables import table


def train(**settings: Any) -> TrainJob:
    return TrainJob.model_validate(settings)


@pytest.mark.parametrize(("recipe", "printed"), table("core/inventory/tables", "printed").items())
def test_a_recipe_is_what_is_printed(recipe: str, printed: dict[str, Any]) -> None:
    values = {str(row["key"]): row["value"] for row in paper_table(printed["of"]).rows}
    dumped = train(recipe=recipe).model_dump()
    for key, name in printed["keys"].items():
        section, _, inner = name.rpartition(".")
        found = dumped[section][inner] if section else dumped[name]
        assert found == values[key], key


@pytest.mark.parametrize(
    ("settings", "others"),
    [*(({"recipe": recipe}, []) for recipe in RECIPES), *table("core/inventory/tables", "recipes")],
)
def test_what_an_inventory_has_of_its_own_is_said_beside_the_recipe(
    settings: dict[str, Any], others: list[str]
) -> None:
    job = train(**settings)
    assert apart_from_recipe(job.recipe, job.model_dump(mode="json", by_alias=True)) == others
