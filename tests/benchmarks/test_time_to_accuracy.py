from pathlib import Path

from benchmarks.time_to_accuracy import ONE, Recipe, row_of
from core.inventory import load
from core.inventory.templates import local_inventory


def test_every_recipe_is_one_that_the_job_takes(tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.yaml"
    inventory.write_text(local_inventory())
    recipes = Recipe.read()
    assert recipes[ONE].workers == 1
    for recipe in recipes.values():
        assert recipe.epochs > 1 + (recipe.limited or 0)
        load(inventory, recipe.settings)


def test_the_time_is_that_of_the_limited_epochs() -> None:
    """The first epoch instantiates graphs, and the last ones of this recipe have no quotas."""
    events = [{"windows_per_second": rate} for rate in (20.0, 100.0, 50.0, 100.0, *3 * (800.0,))]
    settings = {"batch_size": 60, "codec": {"name": "fp32"}, "optimizer": {"name": "adamw"}}
    result = {
        "settings": settings,
        "dataset": {"train_windows": 199, "name": "hapt"},
        "final": {"accuracy": 0.9},
        "staleness": {"mean": 0.0},
        "mode": "async",
        "parameters_sha256": "ab",
    }
    row = row_of(Recipe("one", 1, 7, (), limited=3), 7, events, result)
    assert (row["epoch_seconds"], row["seconds"]) == (1.8, 7 * 1.8)
    assert row_of(Recipe("all", 1, 7, ()), 7, events, result)["epoch_seconds"] == 1.0125
    assert (row["accuracy"], row["seed"], row["batch_size"]) == (0.9, 7, 60)
