"""The two recipes, and the values an inventory's own keys have over them."""

from cluster.inventory import Constant, OneCycle, TrainJob
from cluster.models.residual import ResidualModel
from cluster.models.thesis import ThesisModel
from ps_node.optimizers.adam import AdamOptions as Adam
from ps_node.optimizers.adam import AdamWOptions as AdamW
from tests.inventory.cases import THREE_NODES, read


def test_the_shipped_recipe_is_the_default() -> None:
    train = TrainJob()

    assert train == TrainJob.model_validate({"recipe": "shipped"})
    assert train.optimizer == AdamW(learning_rate=0.002)
    assert train.schedule == OneCycle()
    assert (train.label_smoothing, train.clip_norm, train.keep_probability, train.l2) == (0.05, 1.0, 1.0, 0.0)


def test_the_thesis_recipe_is_what_the_thesis_trained_with() -> None:
    train = TrainJob.model_validate({"recipe": "thesis"})

    assert train.optimizer == Adam(learning_rate=0.001)
    assert train.schedule == Constant()
    assert train.batch_size == 100
    assert (train.l2, train.keep_probability, train.clip_norm, train.replay_worst_batches) == (0.005, 0.85, 15.0, 5)


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
    assert train.model == ThesisModel(hidden=64, batch_norm=True)
    assert train.optimizer == AdamW(learning_rate=0.002), "the inventory names its own"
