"""What may travel to workers in a graph: small tensors, and ops that any TensorFlow computes."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

from cluster.apps.app import App, AppError
from core.engine.runtime import constants_up_to, has_cpu_kernel
from core.ground.lazy import tf
from core.models.network import Network

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
