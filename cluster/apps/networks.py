"""The network that an app describes: with Keras or without, checked before a worker sees it.

A traced model may not contain everything, which is refused with a remedy; weights without a
gradient are named before a training, as they would never change.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from cluster.apps.app import App, AppError
from cluster.apps.app_network import AppNetwork, Kind, PlainNetwork
from cluster.apps.compiled import ONE_ANSWER
from cluster.apps.travels import (
    MOST_CONSTANT_BYTES,
    entry_of,
    functions_of,
    nodes_of,
    refuse_what_does_not_travel,
    traced_by,
)
from core.ground.errors import UsageError
from core.ground.lazy import tf
from core.models.network import Network
from core.models.objective import OWN
from core.models.tasks import Classification, Multilabel
from core.status.parts import Figures

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


BATCH = 4
"""Examples of a batch whose number is known while the functions beside a model are traced."""


def check(network: AppNetwork) -> None:
    """Trace the model twice and look at the graphs and its gradient; then the functions beside it.

    Raises AppError.
    """
    app = network.app
    kind = network.kind
    first, answers = _traced(app, network)
    evaluating, _ = _traced(app, network, training=False)
    for concrete in (first, evaluating):
        refuse_what_does_not_travel(app, concrete)
    _refuse_large_constants(app, network, first)
    second, _ = _traced(app, network)
    if _contents(first.graph) != _contents(second.graph):
        raise AppError(
            f"{app.file}: the model computes something else each time it is traced: it reads a"
            " clock, numpy.random, random or a counter of its own; draw with keras.random and a"
            " SeedGenerator, or from `seed`"
        )
    _refuse_shape(app, network, answers, kind.target_shape)
    mixes = _refuse_hidden_probabilities(app, network, evaluating)
    network.gradient_notes = [*mixes, *notes_on_gradients(app, network)]
    _tryfunctions_of(app, network, answers)


def _traced(
    app: App, network: Network, *, training: bool = True
) -> tuple[Any, tuple[int | None, ...]]:
    shapes = []

    def forward(vector: Any, inputs: Any, seed: Any) -> Any:
        output = network.apply(network.unpack(vector), inputs, training=training, seed=seed)
        shapes.append(tuple(output.logits.shape))
        tensors = [output.logits, *output.statistics.values()]
        if output.penalty is not None:
            tensors.append(output.penalty)
        return tensors

    return traced_by(app, network, forward), shapes[0]


def _refuse_large_constants(app: App, network: AppNetwork, concrete: Any) -> None:
    nodes = nodes_of(concrete.graph.as_graph_def())
    size = sum(
        len(node.attr["value"].tensor.tensor_content) for node in nodes if node.op == "Const"
    )
    size -= sum(np.asarray(value).nbytes for value in network.constants().values())
    if size > MOST_CONSTANT_BYTES:
        raise AppError(
            f"{app.file}: the model uses {size >> 20} MiB of tensors made outside of its call, more"
            f" than {MOST_CONSTANT_BYTES >> 20}: make them weights, or compute with them in data()"
        )


def _contents(graph: Any) -> list[Any]:
    """Return ops and constants without names.

    Names of functions differ from one tracing to the next, and so does their order.
    """
    definition = graph.as_graph_def()
    function_names = functions_of(definition)
    functions = sorted(
        _ops(function.node_def, function_names) for function in definition.library.function
    )
    return [_ops(definition.node, function_names), *functions]


def _ops(nodes: Any, function_names: set[str]) -> list[tuple[str, bytes]]:
    return [
        ("call" if node.op in function_names else node.op, node.attr["value"].SerializeToString())
        for node in nodes
    ]


def _refuse_shape(
    app: App, network: Network, answers: tuple[int | None, ...], targets: tuple[int, ...]
) -> None:
    objective = network.objective
    outputs = network.problem.outputs
    where = f"{app.file}: {entry_of(app)}()"
    if objective.loss is not None and not isinstance(objective, Classification | Multilabel):
        return
    if isinstance(objective, Classification):
        expected_shape: tuple[int, ...] = (*targets, outputs)
        kind = f"for {outputs} classes" + (
            f" at {' x '.join(map(str, targets))} positions" if targets else ""
        )
    elif isinstance(objective, Multilabel):
        expected_shape = (outputs,)
        kind = f"for {outputs} labels"
    else:
        if None not in answers[1:] and int(np.prod(answers[1:])) == outputs:  # type: ignore[arg-type]
            return
        expected_shape = (outputs,)
        kind = f"for {outputs} numbers"
    if len(answers) != len(expected_shape) + 1 or any(
        size is not None and size != expected_size
        for size, expected_size in zip(answers[1:], expected_shape, strict=True)
    ):
        one_answer = (
            answers[1:] == (1,) and expected_shape == (2,) and isinstance(objective, Classification)
        )
        raise AppError(
            f"{where}: expected answers of shape (batch, {', '.join(map(str, expected_shape))})"
            f" {kind} (task {objective.task}), got (batch, {', '.join(map(str, answers[1:]))}):"
            f" {ONE_ANSWER if one_answer else ''}end the model in `outputs` units, or change"
            " `task`"
        )


def _refuse_hidden_probabilities(app: App, network: AppNetwork, evaluating: Any) -> list[str]:
    """Return a line on answers that depend on the other examples of their batch.

    Raises AppError for probabilities that the graph's end does not show: they are no logits.
    """
    objective = network.objective
    shape = (BATCH, *network.problem.input_shape)
    inputs = np.random.default_rng(0).integers(0, 2, shape).astype(network.problem.input_dtype)
    vector = tf.constant(network.initial(network.seed))
    answers, alone = (
        evaluating(vector, tf.constant(rows), tf.zeros([2], tf.int32))[0].numpy()
        for rows in (inputs, inputs[:1])
    )
    notes = []
    if not np.allclose(answers[:1], alone, rtol=1e-2, atol=1e-4 * np.abs(answers).max()):
        notes.append(
            f"{entry_of(app)}(): an example alone gets other answers than in a batch, also where"
            " nothing is trained: a layer works over the axis of the batch, or draws random numbers"
        )
    if not isinstance(objective, Classification):
        return notes
    if objective.probabilities or objective.loss is not None:
        return notes
    if (answers >= 0).all() and np.allclose(answers.sum(-1), 1.0, atol=1e-3):
        raise AppError(
            f"{app.file}: {entry_of(app)}(): the answers of each example add up to 1, as"
            " probabilities do, and would be taken for logits, because the model does not end in a"
            " softmax: leave out what is behind it, or write loss(y, outputs)"
        )
    return notes


def _tryfunctions_of(app: App, network: AppNetwork, answers: tuple[int | None, ...]) -> None:
    """Trace loss(), metrics() and augment(): what is wrong with them is said at once."""
    kind = network.kind
    objective = network.objective

    def called(inputs: Any, true: Any, outputs: Any, seed: Any) -> Any:
        more_inputs, more_true = network.augmented(inputs, true, seed)
        _refuse_augmented(app, (inputs, true), (more_inputs, more_true))
        sums = objective.sums(more_true, outputs, tf.ones([tf.shape(true)[0]]))
        named = [
            *objective.own_names,
            *(name.removeprefix(OWN) for name in sums if name.startswith(OWN)),
        ]
        with app.blamed("metrics"):
            Figures(loss=0.0, others=dict.fromkeys(named, 0.0))
        return [more_inputs, *sums.values()]

    # A job traces them with a known batch, and where slots differ with an unknown one.
    for batch in (None, BATCH):
        specs = [
            tf.TensorSpec([batch, *kind.input_shape], kind.input_dtype),
            tf.TensorSpec([batch, *kind.target_shape], kind.target_dtype),
            tf.TensorSpec([batch, *answers[1:]], tf.float32),
            tf.TensorSpec([2], tf.int32),
        ]
        try:
            graph = tf.function(called, autograph=False).get_concrete_function(*specs)
        except AppError:
            raise
        except UsageError as problem:
            raise AppError(f"{app.file}: {problem}") from None
        refuse_what_does_not_travel(app, graph)


def _refuse_augmented(app: App, before: tuple[Any, Any], after: tuple[Any, Any]) -> None:
    for name, original, augmented in zip("xy", before, after, strict=True):
        same = isinstance(augmented, tf.Tensor) and augmented.shape.is_compatible_with(
            original.shape
        )
        if not same or augmented.dtype != original.dtype:
            if isinstance(augmented, tf.Tensor):
                description = f"{augmented.dtype.name} of shape {augmented.shape}"
            else:
                description = type(augmented).__name__
            raise AppError(
                f"{app.file}: augment(): expected {name} as it came, {original.dtype.name} of shape"
                f" {original.shape}, got {description}: cast or crop it back"
            )


def network_of(app: App, kind: Kind, seed: int) -> AppNetwork:
    """Return the app's model with initial values from `seed`.

    Raises AppError for a model that the cluster cannot train, with the reason and the remedy.
    """
    network: AppNetwork
    if app.has("model"):
        from cluster.apps.keras_network import KerasNetwork

        network = KerasNetwork(app, kind, seed)
    else:
        network = PlainNetwork(app, kind, seed)
    check(network)
    return network
