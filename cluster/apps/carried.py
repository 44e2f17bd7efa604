"""What a Keras model carries beside `call()`: what the cluster cannot use is refused by name."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from cluster.apps.app import App, AppError
from cluster.apps.own_steps import own_step
from core.ground.lazy import keras

if TYPE_CHECKING:
    from cluster.apps.call_scope import CallScope


def refuse_what_is_not_used(app: App, model: Any, scope: "CallScope") -> None:
    """Raise AppError for weights, layers and methods that the cluster would drop.

    `scope` is that of a traced call of the model.
    """
    reason = own_step(model)
    if reason is not None:
        raise AppError(f"{app.file}: {reason}")
    if not model.trainable_variables:
        raise AppError(
            f"{app.file}: model(): it has no weight to train: set trainable = True on a layer"
        )
    for variable in model.trainable_variables:
        _refuse_weight(app, variable)
    for layer in model._flatten_layers():
        _refuse_layer(app, layer)
    _refuse_strangers(app, model, scope.strangers.values())


def refuse_mask(app: App, answers: Any) -> None:
    """Raise AppError for answers with a mask, by which Keras leaves positions out of the loss."""
    if getattr(answers, "_keras_mask", None) is not None:
        raise AppError(
            f"{app.file}: model(): its answers carry a mask (of Masking, or of an Embedding with"
            " mask_zero), by which Keras leaves positions out of the loss, and the cluster does"
            " not: take the mask away before the last layer, give padding a class of its own and"
            " leave it out in loss()"
        )


def _refuse_weight(app: App, variable: Any) -> None:
    if variable.dtype != "float32":
        raise AppError(
            f"{app.file}: model(): weight {variable.path} is {variable.dtype}: expected float32"
            ' weights; to compute in half precision use dtype="mixed_bfloat16"'
        )
    if getattr(variable, "overwrite_with_gradient", False):
        raise AppError(
            f"{app.file}: model(): weight {variable.path} is replaced by its gradient, as in float8"
            ' layers, and not moved by an optimizer: use dtype="mixed_bfloat16"'
        )


def _refuse_layer(app: App, layer: Any) -> None:
    where = f"{app.file}: model(): layer {layer.name}"
    if getattr(layer, "compute_dtype", None) == "float16":
        raise AppError(
            f"{where} computes in float16, where small gradients become 0, because the cluster"
            ' scales no loss: use dtype="mixed_bfloat16", which needs no scale'
        )
    if getattr(layer, "stateful", False):
        raise AppError(
            f"{where} is stateful: its state would depend on which worker saw which example before;"
            " leave out stateful=True"
        )
    if _has_table(layer):
        raise AppError(
            f"{where} ({type(layer).__name__}) looks values up in a table of this process, which"
            " workers do not have: apply it in data(), and give the model the numbers that it"
            " answers"
        )


def _has_table(layer: Any) -> bool:
    return any(
        hasattr(value, "resource_handle") and hasattr(value, "lookup")
        for value in vars(layer).values()
    )


def _refuse_strangers(app: App, model: Any, strangers: Iterable[Any]) -> None:
    metrics = {
        id(variable): f"metric {metric.name} of layer {layer.name}"
        for layer in model._flatten_layers()
        for metric in getattr(layer, "_metrics", [])
        if isinstance(metric, keras.metrics.Metric)
        for variable in metric.variables
    }
    for variable in strangers:
        if id(variable) in metrics:
            raise AppError(
                f"{app.file}: model(): a call updates {metrics[id(variable)]}, which no worker"
                " keeps: compute it in metrics() of the app"
            )
        raise AppError(
            f"{app.file}: model(): a call uses the variable {variable.path}, which is none of the"
            " model's weights: make it with self.add_weight, or assign the layer that has it to an"
            " attribute of a layer of the model"
        )
