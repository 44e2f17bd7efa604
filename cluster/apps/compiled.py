"""What `compile()` says of a Keras model: its loss and metrics are used, or refused by name."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cluster.apps.app import App, AppError
from cluster.apps.travels import constants_travel
from core.ground.lazy import keras, tf

Function = Callable[[Any, Any], Any]

ONE_ANSWER = 'keep it and write task = "multilabel" beside model(), or '
"""The remedy that trains one answer for two classes: as a label that an example may have."""

MEANS = ("sum_over_batch_size", "mean", "mean_with_sample_weight")
"""Reductions that are a mean over the examples, as the cluster's is."""

OF_NUMBERS = {
    "sparse_categorical_crossentropy",
    "sparse_categorical_accuracy",
    "sparse_top_k_categorical_accuracy",
}
"""Functions of Keras that take a class as a whole number."""
OF_ONE_HOT = {
    *(
        "categorical_crossentropy",
        "categorical_focal_crossentropy",
        "categorical_hinge",
        "kl_divergence",
    ),
    *("categorical_accuracy", "top_k_categorical_accuracy"),
}
"""Functions of Keras that take a class as a row with one 1."""

OF_ONE_ANSWER = {
    *("binary_crossentropy", "binary_focal_crossentropy", "binary_accuracy"),
    *("hinge", "squared_hinge"),
}
"""Functions of Keras that take one answer, which says how likely the second of two classes is."""

REPORTED = {
    "classification": {"accuracy", "acc", "sparse_categorical_accuracy", "categorical_accuracy"},
    "multilabel": {"accuracy", "acc", "binary_accuracy"},
    "regression": {"mae", "mean_absolute_error"},
}
"""Metrics that are among the figures of the task anyway."""


@dataclass(frozen=True)
class Compiled:
    """The loss of (targets, answers), as `Objective.loss`, and metrics by name.

    The loss is None and the metrics are empty where none are stated.
    """

    loss: Function | None
    metrics: Mapping[str, Function]


def logits_note(model: Any, task: str, probabilities: bool) -> str | None:
    """Return a line where the compiled loss takes other answers than the model gives, or None.

    `probabilities` says whether the model ends in a softmax or a sigmoid.
    """
    stated = [entry for entry in _listed(_config(model).get("loss")) if entry is not None]
    if task == "regression" or len(stated) != 1:
        return None
    loss = keras.losses.get(_full(stated[0], task))
    options = getattr(loss, "_fn_kwargs", {})
    inner = getattr(loss, "fn", loss)
    if "from_logits" not in inspect.signature(inner).parameters:
        return None
    from_logits = bool(options.get("from_logits", False))
    if from_logits is not probabilities:
        return None
    if from_logits:
        return (
            "compile(): the loss says from_logits=True, and the model ends in a softmax or sigmoid:"
            " leave one of them out"
        )
    return (
        "compile(): the loss takes probabilities, and the model does not end in a softmax or"
        " sigmoid: say from_logits=True if its answers are none"
    )


def compiled_of(app: App, model: Any, task: str, outputs: int) -> Compiled:
    """Return what the model was compiled with. Raises AppError for what the cluster cannot use."""
    where = f"{app.file}: model(): compile()"
    config = _config(model)
    if config.get("run_eagerly"):
        raise AppError(
            f"{where}: run_eagerly=True runs Python, which workers do not have: leave it out"
        )
    if any(weight != 1 for weight in _listed(config.get("loss_weights"))):
        raise AppError(
            f"{where}: loss_weights: there is one loss: multiply it in loss(), or leave"
            " loss_weights out"
        )
    stated = [entry for entry in _listed(config.get("loss")) if entry is not None]
    if len(stated) > 1:
        raise AppError(
            f"{where}: expected one loss, for the one answer, got {len(stated)}: add them up in"
            " loss()"
        )
    if stated and app.has("loss"):
        raise AppError(
            f"{where}: a loss is given here and loss() is another: leave one of them out"
        )
    if stated:
        loss = _loss(app, where, stated[0], task, outputs)
    else:
        loss = None
    metrics = {}
    for metric in [*_listed(config.get("metrics")), *_listed(config.get("weighted_metrics"))]:
        if isinstance(metric, str):
            name = metric
        else:
            name = getattr(metric, "name", getattr(metric, "__name__", str(metric)))
        if name not in REPORTED[task]:
            metrics[name] = _metric(app, where, metric, name, task, outputs)
    if metrics and app.has("metrics"):
        raise AppError(
            f"{where}: metrics are given here and metrics() has others: leave one of them out"
        )
    return Compiled(loss, metrics)


def _config(model: Any) -> dict[str, Any]:
    if getattr(model, "compiled", False):
        compile_config = getattr(model, "_compile_config", None)
    else:
        compile_config = None
    if compile_config is None:
        return {}
    return dict(compile_config.config)


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    if isinstance(value, Mapping):
        value = list(value.values())
    if not isinstance(value, list | tuple):
        return [value]
    return [part for entry in value for part in _listed(entry)]


def _full(stated: Any, task: str) -> Any:
    """Return what a short name means for these targets; anything else stays as it is."""
    short = (
        task == "classification" and isinstance(stated, str) and stated in ("crossentropy", "ce")
    )
    if short:
        return "sparse_categorical_crossentropy"
    return stated


def _loss(app: App, where: str, stated: Any, task: str, outputs: int) -> Function:
    with app.blamed("model"):
        loss = keras.losses.get(_full(stated, task))
    if isinstance(loss, keras.losses.Loss):
        if loss.reduction not in MEANS:
            raise AppError(
                f"{where}: the loss {loss.name} has reduction={loss.reduction!r}: the cluster"
                " takes the mean over the examples; leave reduction out"
            )
        _refuse_ignored(f"{where}: the loss {loss.name}", getattr(loss, "_fn_kwargs", {}))
        inner = getattr(loss, "fn", loss)
        call = loss.call
    else:
        inner = loss
        # Keras's class of a loss that is a function brings both to one number of axes.
        wrapper: Any = keras.losses.MeanSquaredError.__base__
        call = wrapper(loss).call
    return _of_task(app, f"{where}: the loss", inner, call, task, outputs)


def _metric(app: App, where: str, stated: Any, name: str, task: str, outputs: int) -> Function:
    with app.blamed("model"):
        metric = keras.metrics.get(_full(stated, task))
    if not isinstance(metric, keras.metrics.Metric):
        return _of_task(app, f"{where}: the metric", metric, metric, task, outputs)
    inner = getattr(metric, "_fn", None)
    if not isinstance(metric, keras.metrics.MeanMetricWrapper) or inner is None:
        raise AppError(
            f"{where}: the metric {name} ({type(metric).__name__}) is no mean over examples, and"
            " workers keep no state: leave it out; result.json has precision, recall, F1 and"
            " curves, and metrics() takes means"
        )
    options = metric._fn_kwargs
    _refuse_ignored(f"{where}: the metric {name}", options)
    return _of_task(
        app, f"{where}: the metric", inner, lambda y, p: inner(y, p, **options), task, outputs
    )


def _refuse_ignored(what: str, options: Mapping[str, Any]) -> None:
    """Raise AppError where a class does not count: Keras divides by what counts, a mean by all."""
    if options.get("ignore_class") is not None:
        raise AppError(
            f"{what} has ignore_class={options['ignore_class']}, and the cluster's mean is over all"
            " examples: give those of that class the weight 0 in data(), and leave ignore_class out"
        )


def _of_task(app: App, what: str, inner: Any, call: Function, task: str, outputs: int) -> Function:
    """`call` for targets as the cluster has them: a class is a whole number."""
    custom = not str(getattr(inner, "__module__", "")).startswith("keras.")
    name = getattr(inner, "__name__", type(inner).__name__)
    one_hot = task == "classification" and not custom and name in OF_ONE_HOT
    if task == "classification" and not custom and name in OF_ONE_ANSWER:
        raise AppError(
            f"{what} {name} takes one answer for two classes, and there is one for each of"
            f" {outputs}: {ONE_ANSWER if outputs == 2 else ''}end the model in Dense(outputs,"
            ' activation="softmax"), with the loss "sparse_categorical_crossentropy"'
        )
    if task == "classification" and not one_hot and (custom or name not in OF_NUMBERS):
        raise AppError(
            f"{what} {name} would get each class in a form that is not known here: write it as"
            " loss(y, outputs) or metrics(y, outputs) of the app, whose y are whole numbers, and"
            " leave it out of compile()"
        )

    def of_answers(targets: Any, answers: Any) -> Any:
        with app.blamed("model"), constants_travel():
            return call(tf.one_hot(targets, outputs) if one_hot else targets, answers)

    return of_answers
