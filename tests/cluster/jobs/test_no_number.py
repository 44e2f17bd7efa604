"""A figure that is NaN ends a training, in every mode, and chooses no epoch."""

from collections.abc import Callable, Iterator
from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.export.export import compare
from cluster.export.request import ExportRefused
from cluster.jobs import check_app
from cluster.jobs.cancel import Cancel
from cluster.jobs.check_app import _Steps
from cluster.jobs.cv_record import score_of_fold
from cluster.jobs.evaluation import EvaluationResult
from cluster.jobs.fit import DivergedError, Fit, LossCourse, Plan, is_better
from core.data.split import Fold
from core.engine.workers import Outcome
from core.ground.errors import UsageError
from core.ground.lazy import keras, tf
from core.inventory.training_sections import EarlyStopping
from core.models.network import Network
from core.status.parts import Figures
from tests.cluster.jobs.kit import inventory_in, trainer_of
from tests.cluster.jobs.steps_here import (
    EVERY_ROW,
    ROWS,
    job_of,
    measured,
    of_app,
    placed,
    recordings,
)
from worker_node.recordings import Standardization

MODES = ("single", "sync", "async", "ssp", "local", "allreduce")


def model(shape: tuple[int, ...], outputs: int) -> Any:
    return keras.Sequential(
        [keras.Input(shape), keras.layers.Flatten(), keras.layers.Dense(outputs)]
    )


def crossentropy(y: Any, outputs: Any) -> Any:
    return tf.nn.sparse_softmax_cross_entropy_with_logits(tf.cast(y, tf.int32), outputs)


def without_slope(y: Any, outputs: Any) -> Any:
    """A finite loss whose slope is that of a root at zero for one class."""
    usual = tf.cast(tf.not_equal(tf.cast(y, tf.int32), 3), tf.float32)
    return crossentropy(y, outputs) + 0.01 * tf.sqrt(usual * tf.square(outputs[:, 0] - 9.0))


class Here:
    """Runs every item in this process."""

    live = frozenset({0})

    def run(
        self, source: Any, stop: Callable[[], bool], linger_seconds: float = 0.0
    ) -> Iterator[Outcome]:
        items = iter(source) if isinstance(source, list) else iter(lambda: source.draw(0), None)
        for item in items:
            if stop():
                return
            yield Outcome(item, 0, item.function.answer(*item.arguments), 0.1, 1)


def trained(
    network: Network,
    folder: Path,
    mode: str,
    validate: Callable[[], Figures] | None = None,
    **settings: object,
) -> Fit:
    """A training of one epoch."""
    data = recordings(folder)
    job = job_of(mode, epochs=1, label_smoothing=0.0, **settings)
    found, _ = placed(network, job, data)
    vector, _ = measured(network, data)
    trainer = trainer_of(Here(), found, job, objective=network.objective)
    plan = Plan(job, EVERY_ROW)
    fit = Fit(vector=vector)
    of_data = Standardization.of_rows(data, EVERY_ROW)
    trainer.fit("train", fit, plan, of_data, validate, lambda: None)
    return fit


@pytest.mark.parametrize("clip_norm", [None, 15.0])
@pytest.mark.parametrize("mode", MODES)
def test_a_gradient_that_is_nan_ends_the_training_and_the_line_names_its_update(
    tmp_path: Path, mode: str, clip_norm: float | None
) -> None:
    network = of_app(model, loss=without_slope)
    with pytest.raises(DivergedError) as caught:
        trained(network, tmp_path, mode, clip_norm=clip_norm)
    assert str(caught.value).startswith("update 0 (epoch 1): the norm of the gradient is nan")
    assert "nothing was learnt before it" in str(caught.value)


@pytest.mark.parametrize("mode", MODES)
def test_parameters_that_overflow_in_the_last_update_end_the_training(
    tmp_path: Path, mode: str
) -> None:
    network = of_app(model, loss=lambda y, outputs: 100.0 * crossentropy(y, outputs))
    settings: dict[str, Any] = {
        "batch_size": ROWS,
        "clip_norm": None,
        "schedule": {"name": "constant"},
    }
    if mode == "local":
        settings["local"] = {"steps": 1}
    rate = {"name": "sgd", "momentum": 0.0, "learning_rate": 3e38}
    with pytest.raises(DivergedError, match="parameters are not finite after epoch 1"):
        trained(network, tmp_path, mode, optimizer=rate, l2=0.0, **settings)


@pytest.mark.parametrize("loss", [nan, inf])
def test_an_epoch_whose_validation_has_no_loss_is_never_chosen(tmp_path: Path, loss: float) -> None:
    network = of_app(model, loss=crossentropy)
    with pytest.raises(DivergedError, match=f"the loss over what was held out is {loss}"):
        trained(network, tmp_path, "single", lambda: Figures(loss=loss, accuracy=0.9))


def test_an_epoch_with_numbers_replaces_one_without_and_never_the_other_way() -> None:
    lost = Figures(loss=nan, accuracy=0.99)
    found = Figures(loss=2.0, accuracy=0.5)
    early = EarlyStopping(patience=1, min_delta=0.3)
    assert is_better(found, lost, early)
    assert not is_better(lost, found, None)


def test_a_fold_without_a_loss_is_no_score() -> None:
    rows = np.arange(4)
    fold = Fold(0, (1,), rows, rows)
    found = EvaluationResult(Figures(loss=nan, accuracy=0.25), np.zeros((4, 4), np.int64), 4)
    evaluator: Any = lambda *_, **__: found  # noqa: E731
    with pytest.raises(DivergedError, match="the loss over what was held out is nan"):
        score_of_fold(evaluator, fold, np.ones(4, int), evaluator, lambda: False)


def test_a_loss_that_is_nan_has_diverged_wherever_it_stands() -> None:
    assert LossCourse(2.3).diverged([1.0, nan, 1.0]) == "a loss is nan"


def test_the_check_of_an_app_sees_a_gradient_that_is_nan(tmp_path: Path) -> None:
    steps = _Steps(of_app(model, loss=without_slope), job_of("single"), recordings(tmp_path))
    for _ in range(3):
        assert np.isfinite(steps.run())
    assert np.isnan(steps.norm)


def test_the_check_of_an_app_without_a_model_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_app, "one_thread_an_operation", lambda: None)  # it is too late here
    app = tmp_path / "reader.py"
    app.write_text("def data(folder):\n    return folder\n")
    inventory = inventory_in(tmp_path, f"jobs.train.app={app}")
    with Cancel() as cancel, pytest.raises(UsageError, match=r"got one with data\(\) alone"):
        check_app._measured(inventory, cancel)


@pytest.mark.parametrize("odd", [nan, inf])
@pytest.mark.parametrize(
    ("tensorflow", "exported", "words"),
    [(1.0, 0.0, "TensorFlow answers no numbers"), (0.0, 1.0, "or no numbers")],
)
def test_an_export_of_answers_that_are_no_numbers_is_refused(
    odd: float, tensorflow: float, exported: float, words: str
) -> None:
    windows = np.zeros((4, 2), np.float32)
    answers = [np.full((4, 3), odd if share else 0, np.float32) for share in (tensorflow, exported)]
    with pytest.raises(ExportRefused, match=words):
        compare(lambda _: answers[0], lambda _: answers[1], windows, None, lambda *_: None)
