"""Which weights of a model get no gradient: named before a training, as they would never change."""

from collections.abc import Mapping
from typing import Any

from cluster.apps.app import App, AppError
from cluster.apps.travels import entry_of, refuse_what_does_not_travel, traced_by
from core.ground.lazy import tf
from core.models.network import Network

MOST_NAMES = 3
NO_WAY_BACK = {"StopGradient", "PreventGradient"}


def notes_on_gradients(app: App, network: Network) -> list[str]:
    """A line on the weights that no gradient reaches.

    Raises AppError for a weight inside a function with a gradient of its own: Keras's fit gives it
    one, the cluster does not.
    """
    names = [slot.spec.name for slot in network.layout.slots if slot.spec.trained]
    missing: dict[str, Any] = {}
    totals = []

    def gradients(vector: Any, inputs: Any, seed: Any) -> Any:
        values = network.unpack(vector)
        watched = [values[name] for name in names]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(watched)
            output = network.apply(values, inputs, training=True, seed=seed)
            total = tf.reduce_sum(output.logits)
            if output.penalty is not None:
                total += output.penalty
        weight_gradients = tape.gradient(total, watched)
        missing.update(
            (name, values[name])
            for name, gradient in zip(names, weight_gradients, strict=True)
            if gradient is None
        )
        totals.append(total)
        return [
            total,
            *(
                tf.convert_to_tensor(gradient)
                for gradient in weight_gradients
                if gradient is not None
            ),
        ]

    concrete = traced_by(app, network, gradients)
    for name in _inside_own_gradients(totals[-1], missing):
        raise AppError(
            f"{app.file}: {entry_of(app)}(): weight {name} gets no gradient: it is used inside"
            " tf.recompute_grad or another function with a gradient of its own, which reaches that"
            " function's arguments alone: call it without"
        )
    refuse_what_does_not_travel(app, concrete, "the gradient of the model")
    if not missing:
        return []
    first_names = ", ".join(list(missing)[:MOST_NAMES]) + (
        ", ..." if len(missing) > MOST_NAMES else ""
    )
    return [
        f"no gradient reaches {first_names}: no answer that can be learnt depends on them, so they"
        " stay as they begin"
    ]


def _inside_own_gradients(total: Any, weights: Mapping[str, Any]) -> list[str]:
    """Return the weights that `total` depends on through a function with a gradient of its own."""
    visited = set[tuple[Any, bool]]()
    inside = set[Any]()
    due = [(total.op, False)]
    while due:
        op, inside_custom = due.pop()
        if op.type in NO_WAY_BACK or (op, inside_custom) in visited:
            continue
        visited.add((op, inside_custom))
        inside_custom = inside_custom or _has_own_gradient(op)
        if inside_custom:
            inside.add(op)
        due += [(tensor.op, inside_custom) for tensor in op.inputs]
    return [name for name, weight in weights.items() if weight.op in inside]


def _has_own_gradient(op: Any) -> bool:
    if op.type != "IdentityN":
        return False
    return str(op.node_def.attr["_gradient_op_type"].s, "ascii", "replace").startswith(
        "CustomGradient"
    )
