"""What a Keras model says of its own training: its optimizer, as settings, and steps of its own."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from core.ground.errors import UsageError
from core.ground.lazy import keras

OPTIONS_BY_OPTIMIZER = {
    "SGD": ("sgd", ("momentum", "nesterov")),
    "Adam": ("adam", ("beta_1", "beta_2", "epsilon")),
    "AdamW": ("adamw", ("beta_1", "beta_2", "epsilon", "weight_decay")),
}
"""Optimizers of Keras that the cluster has too, and their options beside the rate."""
OPTIONS_WITHOUT_EQUAL = (
    "weight_decay",
    "clipnorm",
    "clipvalue",
    "use_ema",
    "gradient_accumulation_steps",
    "amsgrad",
)

EXCLUDES = ("_exclude_from_weight_decay", "_exclude_from_weight_decay_pattern")
"""Attributes with the weights that do not decay; the optimizer's configuration lacks them."""


def takes_default(model: Any) -> bool:
    """Whether the model's optimizer is the one that `compile()` takes where none is given."""
    optimizer: Any = getattr(model, "optimizer", None)
    usual = keras.optimizers.RMSprop()
    return (
        type(optimizer) is type(usual)
        and optimizer.get_config() | {"name": usual.name} == usual.get_config()
    )


def optimizer_settings(model: Any) -> dict[str, Any] | None:
    """The keys of `jobs.train` that say what the model's compiled optimizer does.

    None if it has none, or the one that `compile()` takes by itself. Raises UsageError for one that
    the cluster lacks.
    """
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None:
        return None
    if takes_default(model):
        return None
    kind = type(optimizer).__name__
    try:
        config = optimizer.get_config()
    except (
        Exception
    ):  # whatever a schedule or an optimizer of the person's own raises: many have no get_config()
        config = {}
    options = OPTIONS_BY_OPTIMIZER.get(kind)
    odd = [
        key
        for key in OPTIONS_WITHOUT_EQUAL
        if config.get(key) and not (options and key in options[1])
    ]
    if any(getattr(optimizer, name, None) for name in EXCLUDES):
        odd.append("exclude_from_weight_decay()")
    rate = config.get("learning_rate")
    if (
        options is None
        or not type(optimizer).__module__.startswith("keras.")
        or odd
        or not isinstance(rate, float)
    ):
        if odd:
            lacking = f" with {odd[0]}"
        else:
            lacking = ""
        raise UsageError(
            f"model: it is compiled with the optimizer {kind}{lacking}, and the job has no equal"
            " for it at a constant rate: leave the optimizer out of compile(), and choose one in"
            " jobs.train.optimizer and jobs.train.schedule"
        )
    settings = {"name": options[0], "learning_rate": _number(rate)}
    settings |= {key: _number(config[key]) for key in options[1]}
    clip = config.get("global_clipnorm")
    return {
        "optimizer": settings,
        "schedule": {"name": "constant"},
        "clip_norm": None if clip is None else _number(clip),
    }


def _number(value: Any) -> Any:
    """A float with as few digits as make the float32 that Keras keeps."""
    if isinstance(value, bool):
        return value
    return float(str(np.float32(value)))


def words_of(settings: Mapping[str, Any]) -> str:
    """The settings as flags of a job."""
    return " ".join(f"--set 'jobs.train.{key}={_yaml(value)}'" for key, value in settings.items())


def _yaml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_yaml(entry)}" for key, entry in value.items()) + "}"
    if value is None:
        return "null"
    return str(value).lower()


OWN_STEPS = {
    **dict.fromkeys(
        ("train_step", "train_on_batch", "make_train_function", "fit"), "computes a step"
    ),
    **dict.fromkeys(("test_step", "test_on_batch", "make_test_function", "evaluate"), "evaluates"),
    **dict.fromkeys(("predict_step", "predict_on_batch", "make_predict_function"), "answers"),
    **dict.fromkeys(("compute_loss", "stateless_compute_loss"), "computes the loss"),
    **dict.fromkeys(("compute_metrics", "get_metrics_result"), "computes the figures"),
}
"""Methods that Keras's own training calls and the cluster does not, with what they do."""


def own_step(model: Any) -> str | None:
    """Why the model cannot be trained as it says, or None."""
    for name, what in OWN_STEPS.items():
        method = getattr(model, name, None)
        if method is None or _is_of_keras(method):
            continue
        return (
            f"model(): {type(model).__name__} {what} in a {name}() of its own, which the cluster"
            " does not call: write that into call(), with add_loss() for a further loss, and into"
            f" loss() and metrics() of the app; then leave {name}() out"
        )
    return None


def _is_of_keras(method: Any) -> bool:
    function = getattr(method, "__func__", method)
    return str(getattr(function, "__module__", "")).startswith("keras.")
