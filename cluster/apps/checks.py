"""What a traced model may not contain, found before a worker sees it: each with its name and a remedy."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from cluster.apps.app import App, AppError
from cluster.apps.networks import AppNetwork
from cluster.engine.runtime import has_cpu_kernel
from cluster.errors import UsageError
from cluster.models.network import Network
from cluster.models.objective import OWN, Classification, Multilabel
from cluster.status.parts import Figures

import tensorflow as tf  # isort: skip

PYTHON_OPS = {"PyFunc", "PyFuncStateless", "EagerPyFunc"}
RANDOM_OPS = {
    *("RandomUniform", "RandomUniformInt", "RandomStandardNormal", "TruncatedNormal", "RandomShuffle", "Multinomial"),
    *("RandomGamma", "RandomPoissonV2", "ParameterizedTruncatedNormal", "RngReadAndSkip", "RngSkip"),
}
"""Ops that draw from a state of their process."""

BATCH = 4
"""Examples of a batch whose number is known while augment() is traced."""

NO_KERNEL_NEEDED = {"Placeholder", "_Arg", "_Retval", "PartitionedCall", "StatefulPartitionedCall"}


def check(network: AppNetwork) -> None:
    """Trace the model twice and look at the graphs; then the functions beside it. Raises AppError."""
    app, kind = network.app, network.kind
    first, answers = _traced(app, network)
    _refuse_captures(app, first)
    for node in _nodes(first.graph):
        _refuse_op(app, node.op, node.name)
    second, _ = _traced(app, network)
    if _contents(first.graph) != _contents(second.graph):
        raise AppError(
            f"{app.file}: the model computes something else each time it is traced: it reads a clock, numpy.random, "
            "random or a counter of its own; draw with keras.random and a SeedGenerator, or from `seed`"
        )
    _refuse_shape(app, network, answers, kind.target_shape)
    _try_functions(app, network, answers)


def _traced(app: App, network: Network) -> tuple[Any, tuple[int | None, ...]]:
    problem, shapes = network.problem, []

    def forward(vector: Any, inputs: Any, seed: Any) -> Any:
        output = network.apply(network.unpack(vector), inputs, training=True, seed=seed)
        shapes.append(tuple(output.logits.shape))
        extra = [] if output.penalty is None else [output.penalty]
        return [output.logits, *output.statistics.values(), *extra]

    with app.blamed("model" if app.has("model") else "forward"):
        concrete = tf.function(forward, autograph=False).get_concrete_function(
            tf.TensorSpec([network.layout.size], tf.float32),
            tf.TensorSpec([None, *problem.input_shape], problem.input_dtype),
            tf.TensorSpec([2], tf.int32),
        )
    return concrete, shapes[0]


def _refuse_captures(app: App, concrete: Any) -> None:
    for captured, inside in concrete.graph.captures:
        if inside.op.type == "Const":
            continue  # a small one, which TensorFlow writes into the graph
        if captured.dtype == tf.resource:
            names = [v.name for v in concrete.graph.variables if v.handle is captured]
            raise AppError(
                f"{app.file}: the model uses the variable {names[0] if names else captured} that is none of its "
                "weights: make it with self.add_weight, or hand it to a layer that the model knows"
            )
        raise AppError(
            f"{app.file}: the model uses a tensor of shape {tuple(captured.shape)} made outside of its call: make it a "
            "NumPy array, or a weight with trainable=False"
        )


def _nodes(graph: Any) -> Iterator[Any]:
    definition = graph.as_graph_def()
    yield from definition.node
    for function in definition.library.function:
        yield from function.node_def


def _refuse_op(app: App, op: str, name: str) -> None:
    if op in PYTHON_OPS:
        raise AppError(
            f"{app.file}: the model calls Python while it computes ({name}: tf.py_function or tf.numpy_function): "
            "workers run graphs without Python; write it with TensorFlow or keras.ops"
        )
    if op in RANDOM_OPS:
        raise AppError(
            f"{app.file}: the model draws random numbers with {op} ({name}), whose state is that of a process: use "
            "keras.random with a SeedGenerator, or tf.random.stateless_* with `seed`"
        )
    if op in NO_KERNEL_NEEDED or op.startswith("__"):
        return
    if not hasattr(tf.raw_ops, op) and not op.startswith("_"):
        raise AppError(
            f"{app.file}: the model uses the op {op} ({name}), which is none of TensorFlow's: workers have no kernel "
            "for it; write it with TensorFlow's own"
        )
    if not has_cpu_kernel(op):
        raise AppError(f"{app.file}: the model uses the op {op} ({name}), which has no kernel for a CPU")


def _contents(graph: Any) -> list[Any]:
    """Ops and constants, without names: those of functions differ from one tracing to the next, and so their order."""
    definition = graph.as_graph_def()
    functions = sorted(_ops(function.node_def) for function in definition.library.function)
    return [_ops(definition.node), *functions]


def _ops(nodes: Any) -> list[tuple[str, bytes]]:
    return [("call" if node.op.startswith("__") else node.op, node.attr["value"].SerializeToString()) for node in nodes]


def _refuse_shape(app: App, network: Network, answers: tuple[int | None, ...], targets: tuple[int, ...]) -> None:
    objective, outputs = network.objective, network.problem.outputs
    where = f"{app.file}: {'model' if app.has('model') else 'forward'}()"
    if objective.loss is not None and not isinstance(objective, Classification | Multilabel):
        return
    if isinstance(objective, Classification):
        wanted: tuple[int, ...] = (*targets, outputs)
        kind = f"for {outputs} classes" + (f" at {' x '.join(map(str, targets))} positions" if targets else "")
    elif isinstance(objective, Multilabel):
        wanted, kind = (outputs,), f"for {outputs} labels"
    else:
        if None not in answers[1:] and int(np.prod(answers[1:])) == outputs:  # type: ignore[arg-type]
            return
        wanted, kind = (outputs,), f"for {outputs} numbers"
    if len(answers) != len(wanted) + 1 or any(
        got is not None and got != need for got, need in zip(answers[1:], wanted, strict=True)
    ):
        raise AppError(
            f"{where}: expected answers of shape (batch, {', '.join(map(str, wanted))}) {kind} (task "
            f"{objective.task}), got (batch, {', '.join(map(str, answers[1:]))}): end the model in `outputs` units, or "
            "change `task`"
        )


def _try_functions(app: App, network: AppNetwork, answers: tuple[int | None, ...]) -> None:
    """Trace loss(), metrics() and augment(): what is wrong with them is said now, not by a worker."""
    kind, objective = network.kind, network.objective

    def called(inputs: Any, true: Any, found: Any, seed: Any) -> Any:
        more_inputs, more_true = network.augmented(inputs, true, seed)
        _refuse_augmented(app, (inputs, true), (more_inputs, more_true))
        sums = objective.sums(more_true, found, tf.ones([tf.shape(true)[0]]))
        named = [*objective.own_names, *(name.removeprefix(OWN) for name in sums if name.startswith(OWN))]
        with app.blamed("metrics"):
            Figures(loss=0.0, others=dict.fromkeys(named, 0.0))
        return [more_inputs, *sums.values()]

    traced = tf.function(called, autograph=False)
    specs = [
        tf.TensorSpec([None, *kind.input_shape], kind.input_dtype),
        tf.TensorSpec([None, *kind.target_shape], kind.target_dtype),
        tf.TensorSpec([None, *answers[1:]], tf.float32),
        tf.TensorSpec([2], tf.int32),
    ]
    try:
        graph = traced.get_concrete_function(*specs)
    except AppError:
        raise
    except UsageError as problem:
        raise AppError(f"{app.file}: {problem}") from None
    _refuse_captures(app, graph)
    for node in _nodes(graph.graph):
        _refuse_op(app, node.op, node.name)
    if app.has("augment"):
        # The loss of a batch is the sum over its examples by the number that it has.
        tf.function(lambda x, y, seed: _refuse_augmented(app, (x, y), network.augmented(x, y, seed)), autograph=False)(
            tf.zeros([BATCH, *kind.input_shape], kind.input_dtype),
            tf.zeros([BATCH, *kind.target_shape], kind.target_dtype), tf.zeros([2], tf.int32),
        )  # fmt: skip


def _refuse_augmented(app: App, before: tuple[Any, Any], after: tuple[Any, Any]) -> None:
    for name, given, found in zip("xy", before, after, strict=True):
        same = isinstance(found, tf.Tensor) and found.shape.is_compatible_with(given.shape)
        if not same or found.dtype != given.dtype:
            got = f"{found.dtype.name} of shape {found.shape}" if isinstance(found, tf.Tensor) else type(found).__name__
            raise AppError(
                f"{app.file}: augment(): expected {name} as it came, {given.dtype.name} of shape {given.shape}, got "
                f"{got}: cast or crop it back"
            )
