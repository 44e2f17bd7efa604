"""The recipes, and the values an inventory's own keys have over them."""

from typing import Any

import pytest

from core.inventory import TrainJob
from core.inventory.recipes import RECIPES, apart_from_recipe
from experiments.tables.paper import paper_table


def train(**settings: Any) -> TrainJob:
    return TrainJob.model_validate(settings)


@pytest.mark.parametrize(
    ("recipe", "table", "keys"),
    [
        (
            "thesis",
            "thesis-hyperparameters",
            {
                "training_epochs": "epochs",
                "batch_size": "batch_size",
                "lambda_loss_amount": "l2",
                "keep_prob_for_dropout": "keep_probability",
                "clip_gradients": "clip_norm",
                "worst batches kept": "replay_worst_batches",
                "learning_rate": "optimizer.learning_rate",
                "bias_mean": "model.bias_mean",
            },
        ),
        (
            "kimm",
            "kimm-settings",
            {"epochs": "epochs", "batch size of the printed code": "batch_size"},
        ),
    ],
)
def test_a_recipe_is_what_is_printed(recipe: str, table: str, keys: dict[str, str]) -> None:
    printed = {str(row["key"]): row["value"] for row in paper_table(table).rows}
    dumped = train(recipe=recipe).model_dump()
    for key, name in keys.items():
        section, _, inner = name.rpartition(".")
        found = dumped[section][inner] if section else dumped[name]
        assert found == printed[key], key


@pytest.mark.parametrize(
    ("settings", "others"),
    [
        ({}, []),
        *(({"recipe": recipe}, []) for recipe in RECIPES),
        (
            {
                "recipe": "kth",
                "model": {"name": "thesis"},
                "epochs": 12,
                "data": {"window_stride": 50},
            },
            [
                "data.window_stride 50 instead of 20",
                "model.name thesis instead of kth",
                "epochs 12 instead of 50",
            ],
        ),
        (
            {
                "recipe": "kimm",
                "optimizer": {"learning_rate": 0.0025},
                "clip_norm": 1.0,
                "model": {"units": 32},
            },
            ["optimizer.learning_rate 0.0025 instead of 0.001", "clip_norm 1 instead of null"],
        ),
    ],
)
def test_what_an_inventory_has_of_its_own_is_said_beside_the_recipe(
    settings: dict[str, Any], others: list[str]
) -> None:
    job = train(**settings)
    assert apart_from_recipe(job.recipe, job.model_dump(mode="json", by_alias=True)) == others
