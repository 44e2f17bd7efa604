"""The constraint of a Keras variable as a pure function of its value."""

from collections.abc import Callable
from typing import Any

from cluster.apps.app import App, AppError
from cluster.apps.travels import constants_travel, refuse_what_does_not_travel
from core.ground.lazy import tf


def constraint_of(app: App, variable: Any) -> Callable[[Any], Any] | None:
    """Return what Keras applies to the variable after each update, or None.

    Raises AppError for one that cannot be computed where the weight is, or that answers with
    another shape.
    """
    constraint = variable.constraint
    shape = tuple(variable.shape)
    if constraint is None:
        return None

    def applied(weight: Any) -> Any:
        with app.blamed("model"), constants_travel():
            return tf.convert_to_tensor(constraint(weight))

    concrete = tf.function(applied, autograph=False).get_concrete_function(
        tf.TensorSpec(shape, tf.float32)
    )
    [answer] = concrete.outputs
    if answer.dtype != tf.float32 or not answer.shape.is_compatible_with(shape):
        raise AppError(
            f"{app.file}: model(): the constraint of {variable.path} answers with"
            f" {answer.dtype.name} of shape {answer.shape}: expected float32 of shape {shape}, as"
            " the weight has"
        )
    refuse_what_does_not_travel(app, concrete, f"the constraint of {variable.path}")
    return applied
