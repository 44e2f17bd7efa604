"""Methods of a Keras model's own that Keras's training calls and the cluster does not."""

from typing import Any

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
