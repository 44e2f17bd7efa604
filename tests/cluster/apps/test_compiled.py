"""What compile() was given is used, or refused by name: loss, metrics, optimizer."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.apps.app import App
from cluster.apps.app_network import AppNetwork
from cluster.apps.keras_settings import optimizer_settings
from cluster.apps.networks import network_of
from cluster.jobs.job_network import as_compiled, network_for
from core.data.dataset import Array, Dataset
from core.ground.errors import UsageError
from core.ground.lazy import keras, tf
from core.inventory import TrainJob, load
from tests.cluster.apps.kit import OUTPUTS, app_of, figures_of, kinds
from tests.lazy import losses, metrics, optimizers, own_keras

THIS_MACHINE = "inventories/local.yaml"
KINDS = kinds((4,))


def half_of_it(y: Any, outputs: Any) -> Any:
    return keras.ops.mean(keras.ops.abs(y - outputs), -1) / 2


def biases_free() -> Any:
    found = optimizers.AdamW(weight_decay=0.1)
    found.exclude_from_weight_decay(var_names=["bias"])
    return found


def compiled_app(compiled: dict[str, Any]) -> App:
    def model(shape: tuple[int, ...], outputs: int) -> Any:
        found = keras.Sequential([keras.Input(shape), keras.layers.Dense(outputs)])
        found.compile(**compiled)
        return found

    return app_of(model=model)


def network(task: str, compiled: dict[str, Any]) -> AppNetwork:
    return network_of(compiled_app(compiled), KINDS[task], 1)


@pytest.mark.parametrize(
    ("task", "compiled", "shown"),
    [
        ("regression", lambda: {"loss": "mae", "metrics": ["mse", "mae"]}, ["mse"]),
        (
            "regression",
            lambda: {"loss": half_of_it, "metrics": [metrics.MeanAbsoluteError(name="far")]},
            ["far"],
        ),
        (
            "multilabel",
            lambda: {
                "loss": losses.BinaryFocalCrossentropy(from_logits=True),
                "metrics": ["accuracy"],
            },
            [],
        ),
        (
            "classification",
            lambda: {"loss": losses.SparseCategoricalCrossentropy(from_logits=True)},
            [],
        ),
        (
            "classification",
            lambda: {
                "loss": losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.2),
                "metrics": ["accuracy", metrics.SparseTopKCategoricalAccuracy(2, name="top_two")],
            },
            ["top_two"],
        ),
    ],
)
def test_loss_and_metrics_are_keras_own(
    task: str, compiled: Callable[[], dict[str, Any]], shown: list[str]
) -> None:
    given = compiled()
    found = network(task, given)
    random = np.random.default_rng(0)
    x = random.normal(size=(5, 4)).astype(np.float32)
    classes = random.integers(0, OUTPUTS, 5).astype(np.int32)
    one_hot = np.eye(OUTPUTS, dtype=np.int32)[classes]
    y: Any = {"classification": classes, "multilabel": one_hot, "regression": x + 1}[task]
    model = found.filled(found.initial(1))  # type: ignore[attr-defined]
    model.compile(**given)
    answers = model(x)
    figures = figures_of(found, tf.constant(y), answers)
    if isinstance(given["loss"], losses.CategoricalCrossentropy):
        theirs = model.compute_loss(x, one_hot.astype(np.float32), answers)
    else:
        theirs = model.compute_loss(x, y, answers)
    assert figures["loss"] == pytest.approx(float(theirs), rel=1e-5)
    assert sorted({"mse", "far", "top_two"} & set(figures["others"])) == shown
    for metric in given.get("metrics", []):
        name = getattr(metric, "name", metric)
        if name in shown:
            own = metrics.get(metric)
            own.update_state(y, answers)
            assert figures["others"][name] == pytest.approx(float(own.result()), rel=1e-5)


def test_a_short_name_is_that_of_the_targets() -> None:
    found = network("classification", {"loss": "crossentropy", "metrics": ["ce"]})
    answers = tf.constant([[0.7, 0.1, 0.1, 0.1], [0.3, 0.2, 0.4, 0.1]])
    figures = figures_of(found, tf.constant([0, 2]), answers)
    expected = pytest.approx(-(np.log(0.7) + np.log(0.4)) / 2, rel=1e-5)
    assert (figures["loss"], figures["others"]["ce"]) == (expected, expected)


DATA = Dataset(
    "none",
    "none",
    "",
    Path(),
    tuple("abc"),
    8,
    4,
    "",
    Array("x", "float32", (4,)),
    Array("y", "int32", ()),
    standardized=False,
)


def test_the_job_trains_with_the_optimizer_that_the_model_states_or_says_how() -> None:
    loss = {"loss": losses.SparseCategoricalCrossentropy(from_logits=True)}
    app = compiled_app({**loss, "optimizer": optimizers.SGD(0.25, momentum=0.5)})
    built = network_for(TrainJob(), DATA, app)
    with pytest.raises(
        UsageError,
        match=r"compiled with the optimizer sgd.* adamw.*--set 'jobs.train.optimizer=\{"
        r".*learning_rate: 0.25, momentum: 0.5, nesterov: false.*jobs.train.clip_norm=null",
    ) as refused:
        as_compiled(load(THIS_MACHINE, ["jobs.train.clip_norm=3"]), built)
    _, flags = str(refused.value).split("with --set ")
    same = load(THIS_MACHINE, [word for word in shlex.split(flags) if word != "--set"])
    assert as_compiled(load(THIS_MACHINE), built) == as_compiled(same, built) == same
    usual = network_for(TrainJob(), DATA, compiled_app(loss))
    assert isinstance(usual, AppNetwork)
    assert usual.notes() == [
        "compile() got no optimizer, or Keras's default of it, rmsprop: jobs.train.optimizer"
        " decides"
    ]


@pytest.mark.parametrize(
    "made",
    [
        lambda: optimizers.Nadam(),
        lambda: optimizers.Adam(optimizers.schedules.CosineDecay(0.1, 10)),
        lambda: optimizers.Adam(own_keras.OwnSchedule()),
        biases_free,
    ],
)
def test_an_optimizer_without_an_equal_is_refused_by_name(made: Callable[[], Any]) -> None:
    optimizer = made()
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(optimizer)
    with pytest.raises(
        UsageError,
        match=rf"optimizer {type(optimizer).__name__}.* no equal .*jobs\.train\.optimizer",
    ):
        optimizer_settings(model)
