"""The recipes, and the values an inventory's own keys have over them."""

from typing import Any

import pytest

from cluster.inventory import Constant, OneCycle, TrainJob
from cluster.inventory.recipes import RECIPES, apart_from_recipe
from cluster.models.dblstm import DeepBidirectionalModel
from cluster.models.kth import KthModel
from cluster.models.residual import ResidualModel
from cluster.models.thesis import ThesisModel
from cluster.references.tables import own_table
from ps_node.optimizers.adam import AdamOptions as Adam
from ps_node.optimizers.adam import AdamWOptions as AdamW
from tests.inventory.cases import THREE_NODES, read


def settings_of(table: str) -> dict[str, Any]:
    """What a table of the papers has, by key."""
    return {str(row["key"]): row["value"] for row in own_table(table).rows}


def test_the_shipped_recipe_is_the_default() -> None:
    train = TrainJob()

    assert train == TrainJob.model_validate({"recipe": "shipped"})
    assert train.optimizer == AdamW(learning_rate=0.002)
    assert train.schedule == OneCycle()
    assert (train.label_smoothing, train.clip_norm, train.keep_probability, train.l2) == (0.05, 1.0, 1.0, 0.0)


def test_the_thesis_recipe_is_what_the_thesis_trained_with() -> None:
    train, printed = TrainJob.model_validate({"recipe": "thesis"}), settings_of("thesis-hyperparameters")

    assert train.optimizer == Adam(learning_rate=printed["learning_rate"])
    assert train.schedule == Constant()
    assert (train.epochs, train.batch_size) == (printed["training_epochs"], printed["batch_size"]) == (250, 100)
    assert train.l2 == printed["lambda_loss_amount"]
    assert train.keep_probability == printed["keep_prob_for_dropout"]
    assert train.clip_norm == printed["clip_gradients"]
    assert train.replay_worst_batches == printed["worst batches kept"]
    assert train.label_smoothing == 0.0
    assert train.model == ThesisModel(bias_mean=printed["bias_mean"])


def test_what_an_inventory_has_of_its_own_is_said_beside_the_recipe() -> None:
    def others(settings: dict[str, Any]) -> list[str]:
        train = TrainJob.model_validate(settings)
        return apart_from_recipe(train.recipe, train.model_dump(mode="json", by_alias=True))

    assert others({}) == []
    assert [others({"recipe": recipe}) for recipe in RECIPES] == [[]] * len(RECIPES)
    assert others({"recipe": "kth", "model": {"name": "thesis"}, "epochs": 12, "data": {"window_stride": 50}}) == [
        "data.window_stride 50 instead of 20", "model.name thesis instead of kth", "epochs 12 instead of 50",
    ]  # fmt: skip
    of_kimm = {"recipe": "kimm", "optimizer": {"learning_rate": 0.0025}, "clip_norm": 1.0, "model": {"units": 32}}
    assert others(of_kimm) == ["optimizer.learning_rate 0.0025 instead of 0.001", "clip_norm 1 instead of null"]


@pytest.mark.parametrize(
    ("model", "normed"),
    [
        ({}, False),
        ({"n_layers_in_highway": 0}, False),
        ({"n_layers_in_highway": 1}, True),
        ({"n_layers_in_highway": 4, "n_stacked_layers": 4}, True),
        ({"n_layers_in_highway": 4, "batch_norm": False}, False),
        ({"batch_norm": True}, True),
    ],
)
def test_batch_norm_follows_residual_cells_in_the_thesis_recipe_alone(model: dict[str, Any], normed: bool) -> None:
    thesis = TrainJob.model_validate({"recipe": "thesis", "model": model}).model
    shipped = TrainJob.model_validate({"model": model}).model

    assert isinstance(thesis, ThesisModel)
    assert isinstance(shipped, ThesisModel)
    assert thesis.batch_norm is normed
    assert shipped.batch_norm is model.get("batch_norm", False)


def test_kimms_recipe_is_what_kimm_trained_with() -> None:
    train, printed = TrainJob.model_validate({"recipe": "kimm"}), settings_of("kimm-settings")

    assert train.model == DeepBidirectionalModel(units=128, layers=3)
    assert (
        (train.epochs, train.batch_size) == (printed["epochs"], printed["batch size of the printed code"]) == (30, 64)
    )
    assert train.optimizer == Adam(learning_rate=0.001)
    assert train.schedule == Constant()
    assert (train.clip_norm, train.label_smoothing, train.keep_probability, train.l2) == (None, 0.0, 1.0, 0.0)
    assert train.replay_worst_batches == 0
    assert TrainJob.model_validate({"recipe": "kimm", "batch_size": 128}).batch_size == 128


def test_the_recipe_of_kth_has_the_slides_network_window_batch_and_epochs() -> None:
    train = TrainJob.model_validate({"recipe": "kth", "data": {"source": "x.csv", "window_stride": 100}})

    assert train.model == KthModel(hidden=64, layers=2)
    assert (train.batch_size, train.epochs) == (1000, 50)
    assert train.optimizer == Adam(learning_rate=0.0025)
    assert (train.l2, train.clip_norm, train.label_smoothing, train.staleness_power) == (0.0015, None, 0.0, 0.0)
    assert (train.data.source, train.data.window_steps, train.data.window_stride) == ("x.csv", 200, 100)
    assert train.data.split == "groups", "theirs was random, which is a leak: nobody gets it without asking"
    assert TrainJob.model_validate({"recipe": "kth"}).data.window_stride == 20


def test_keys_of_the_inventory_go_before_the_recipe() -> None:
    train = TrainJob.model_validate({"recipe": "thesis", "clip_norm": None, "optimizer": {"learning_rate": 0.01}})

    assert train.clip_norm is None
    assert train.optimizer == Adam(learning_rate=0.01)


def test_a_recipes_knobs_stay_with_the_recipes_choice() -> None:
    train = TrainJob.model_validate({"recipe": "thesis", "model": {"name": "residual"}, "optimizer": {"name": "adamw"}})

    assert train.model == ResidualModel()
    assert train.optimizer == AdamW()


def test_a_section_without_a_name_is_the_recipes() -> None:
    assert TrainJob.model_validate({"model": {"hidden": 64}}).model == ThesisModel(hidden=64)


def test_a_recipe_is_chosen_for_one_call() -> None:
    train = read(THREE_NODES, ["jobs.train.recipe=thesis"]).jobs.train

    assert train.keep_probability == 0.85
    assert train.model == ThesisModel(hidden=64)
    assert train.optimizer == AdamW(learning_rate=0.002), "the inventory names its own"
