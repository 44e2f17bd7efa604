"""What may travel to workers in a graph: small tensors, and ops that any TensorFlow computes.

What else a Keras model carries is refused or noted by name: layers that compute while a model is
made and are no part of it answer constants, as in Keras.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from cluster.apps.app import App, AppError
from cluster.apps.keras_settings import own_step
from core.engine.runtime import constants_up_to, has_cpu_kernel
from core.ground.lazy import keras, tf
from core.models.network import Network

if TYPE_CHECKING:
    from cluster.apps.call_scope import CallScope


MOST_CONSTANT_BYTES = 64 << 20
"""The limit of values that are neither trained nor averaged.

They travel to each worker in every function: a graph ends at 2 GiB, and a Pi's memory before that.
"""

SEED_STATE = "seed_generator_state"
"""The name of a Keras generator's variable."""

PYTHON_OPS = {"PyFunc", "PyFuncStateless", "EagerPyFunc"}
RANDOM_OPS = {
    *(
        "RandomUniform",
        "RandomUniformInt",
        "RandomStandardNormal",
        "TruncatedNormal",
        "RandomShuffle",
        "Multinomial",
    ),
    *(
        "RandomGamma",
        "RandomPoissonV2",
        "ParameterizedTruncatedNormal",
        "RngReadAndSkip",
        "RngSkip",
    ),
}
"""Ops that draw from a state of their process."""

LIBRARY_OPS = {"PsclusterLayer", "PsclusterLayerGradient"}
"""The ops of `pscluster.keras`. Workers prove that they have them (`has_library_layers`)."""

NO_KERNEL_NEEDED = {"Placeholder", "_Arg", "_Retval", "PartitionedCall", "StatefulPartitionedCall"}


def traced_by(app: App, network: Network, function: Any) -> Any:
    """The concrete function of (vector, inputs, seed), as the model's own code traces it.

    Raises AppError for what goes wrong in the app's code.
    """
    problem = network.problem
    with app.blamed(entry_of(app)):
        return tf.function(function, autograph=False).get_concrete_function(
            tf.TensorSpec([network.layout.size], tf.float32),
            tf.TensorSpec([None, *problem.input_shape], problem.input_dtype),
            tf.TensorSpec([2], tf.int32),
        )


def entry_of(app: App) -> str:
    """The function of the app that computes the model."""
    if app.has("model"):
        return "model"
    return "forward"


def constants_travel() -> AbstractContextManager[None]:
    """Return a context: tensors from outside of a traced function become its constants."""
    return constants_up_to(MOST_CONSTANT_BYTES // 4)


def refuse_what_does_not_travel(app: App, concrete: Any, what: str = "the model") -> None:
    """Raise AppError for what a traced function needs of this process, or no worker computes."""
    _refuse_captures(app, concrete, what)
    definition = concrete.graph.as_graph_def()
    function_names = functions_of(definition)
    for node in nodes_of(definition):
        if node.op not in function_names:
            _refuse_op(app, node, what)


def _refuse_captures(app: App, concrete: Any, what: str) -> None:
    for captured, inside in concrete.graph.captures:
        if inside.op.type == "Const":
            continue  # TensorFlow writes it into the graph
        if captured.dtype != tf.resource:
            raise AppError(
                f"{app.file}: {what} uses a tensor of shape {tuple(captured.shape)} made outside of"
                " its call, larger than what a graph may hold: make it a weight with"
                " trainable=False, or compute with it in data()"
            )
        names = [
            variable.name for variable in concrete.graph.variables if variable.handle is captured
        ]
        if not names:
            raise AppError(
                f"{app.file}: {what} uses a table or another resource of this process"
                f" ({captured!s:.80}), which workers do not have: look values up in data(), or with"
                " tf.gather in a tensor"
            )
        if SEED_STATE in names[0]:
            raise AppError(
                f"{app.file}: random numbers are drawn without a seed ({names[0]}): draw them from"
                " `seed` with keras.random or tf.random.stateless_*, in augment() or a layer"
            )
        raise AppError(
            f"{app.file}: {what} uses the variable {names[0]} that is none of its weights: make it"
            " with self.add_weight, or hand it to a layer that the model knows"
        )


def functions_of(definition: Any) -> set[str]:
    """Names of the functions of a graph: an op of such a name is a call."""
    return {function.signature.name for function in definition.library.function}


def nodes_of(definition: Any) -> Iterator[Any]:
    """The nodes of a graph and of its functions."""
    yield from definition.node
    for function in definition.library.function:
        yield from function.node_def


def _refuse_op(app: App, node: Any, what: str) -> None:
    op = node.op
    name = node.name
    if op in PYTHON_OPS:
        raise AppError(
            f"{app.file}: {what} calls Python while it computes ({name}: tf.py_function or"
            " tf.numpy_function): workers run graphs without Python; write it with TensorFlow or"
            " keras.ops"
        )
    if op in RANDOM_OPS:
        raise AppError(
            f"{app.file}: {what} draws random numbers with {op} ({name}), whose state is that of a"
            " process: use keras.random with a SeedGenerator, or tf.random.stateless_* with `seed`"
        )
    if op in NO_KERNEL_NEEDED | LIBRARY_OPS:
        return
    if not hasattr(tf.raw_ops, op) and not op.startswith("_"):
        raise AppError(
            f"{app.file}: {what} uses the op {op} ({name}), which is none of TensorFlow's: workers"
            " have no kernel for it; write it with TensorFlow's own"
        )
    if not has_cpu_kernel(op):
        raise AppError(
            f"{app.file}: {what} uses the op {op} ({name}), which has no kernel for a CPU"
        )


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


@contextmanager
def layers_that_compute() -> Iterator[list[Any]]:
    """Yield the layers with weights to train that are called on values, not on symbols, inside."""
    computed: list[Any] = []
    usual = keras.layers.Layer.__call__

    def watched(layer: Any, *arguments: Any, **named: Any) -> Any:
        answers = usual(layer, *arguments, **named)
        if layer.trainable_variables and any(map(_is_value, keras.tree.flatten(answers))):
            computed.append(layer)
        return answers

    keras.layers.Layer.__call__ = watched
    try:
        yield computed
    finally:
        keras.layers.Layer.__call__ = usual


def _is_value(answer: Any) -> bool:
    return isinstance(answer, tf.Tensor) and not tf.is_symbolic_tensor(answer)


def notes_on_outside(layers: Sequence[Any], model: Any) -> list[str]:
    """A line for each of `layers` that is no part of the model, those inside others left out."""
    inside = {id(sublayer) for sublayer in model._flatten_layers()}
    for layer in layers:
        inside |= {id(sublayer) for sublayer in layer._flatten_layers(include_self=False)}
    names = dict.fromkeys(layer.name for layer in layers if id(layer) not in inside)
    return [
        f"layer {name} computes while model() runs and is no part of the model: what it answers is"
        " a constant there, and its weights are not trained; call it on what comes from"
        " keras.Input, or in call()"
        for name in names
    ]
