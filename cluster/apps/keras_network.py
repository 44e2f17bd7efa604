"""A Keras model as a network of the engine: weights in the flat vector, its call a pure function.

Keras keeps three kinds of values that are not trained. Seeds of random generators: each gets a seed
of its own from that of the slot, so that who computes it does not matter. Values that a call
changes, such as the moving averages of BatchNormalization: they go into the vector's statistics.
Values that no call changes, such as a frozen layer's weights: they are constants of the graph.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

from cluster.apps.app import App, AppError
from cluster.apps.app_network import AppNetwork, Kind
from cluster.apps.compiled import Compiled, compiled_of, logits_note
from cluster.apps.keras_settings import optimizer_settings, takes_default, words_of
from cluster.apps.travels import (
    LIBRARY_OPS,
    MOST_CONSTANT_BYTES,
    constants_travel,
    constraint_of,
    layers_that_compute,
    nodes_of,
    notes_on_outside,
    refuse_mask,
    refuse_what_is_not_used,
)
from core.ground.errors import reason_of
from core.ground.files import folder_beside, write_refusal
from core.ground.lazy import Lazy, keras, tf
from core.models.network import ForwardPass, Tensors
from core.models.operations import for_xla
from core.parameters import STATISTICS_RATE, Layout, ParameterSpec, Vector

if TYPE_CHECKING:
    from cluster.apps import call_scope
else:
    call_scope = Lazy("cluster.apps.call_scope")  # its class is one of Keras's

EXPORTED = "model.keras"
LARGE_TABLE_BYTES = 8 << 20


class KerasNetwork(AppNetwork):
    """A Keras model as a network of the engine."""

    def __init__(self, app: App, kind: Kind, seed: int) -> None:
        """Build the app's model with `seed`. Raises AppError for what cannot be trained here."""
        super().__init__(app, kind, seed)
        self._built_by_a_call = False
        """Whether the model has weights that only a real call makes, such as those of a cell
        without build()."""
        self.model = self._built(seed)
        early = len(_variables(self.model))
        scope, answers = self._traced(self.model)
        if len(_variables(self.model)) > early:
            self._built_by_a_call = True
            scope, answers = self._traced(self.model)
        refuse_what_is_not_used(self.app, self.model, scope)
        self._names = _unique([variable.path for variable in self.model.trainable_variables])
        rest = self.model.non_trainable_variables
        self._changed = self._changed_by_a_call(scope)
        self._looped = {
            k for k, variable in enumerate(rest) if id(variable) in scope.changed_inside
        }
        self._use(compiled_of(app, self.model, kind.task, kind.outputs))
        if _ends_in_probabilities(answers):
            self.objective = replace(self.objective, probabilities=True)
        logits = logits_note(self.model, kind.task, self.objective.probabilities)
        if logits is not None:
            self._outside.append(logits)
        rest_names = _unique([variable.path for variable in rest])
        self._statistics = {k: rest_names[k] for k in self._changed}
        specs = [
            ParameterSpec(
                name,
                tuple(variable.shape),
                decayed=len(variable.shape) > 1,
                constraint=constraint_of(self.app, variable),
            )
            for name, variable in zip(self._names, self.model.trainable_variables, strict=True)
        ]
        specs += [
            ParameterSpec(name, tuple(rest[k].shape), trained=False, decayed=False)
            for k, name in self._statistics.items()
        ]
        self.layout = Layout(specs)
        self.frozen = {
            name: np.asarray(variable)
            for k, (name, variable) in enumerate(zip(rest_names, rest, strict=True))
            if k not in self._changed and not call_scope.is_seed(variable)
        }
        self._rest_names = rest_names
        self._refuse_large_constants()
        self._initial = self._values_of(self.model)
        """Read now: once the cluster is connected, TensorFlow no longer finds what was on its own
        in this process."""

    def _built(self, seed: int) -> Any:
        keras.utils.set_random_seed(seed % 2**32)
        with layers_that_compute() as computed:
            model = self.app.call("model", self.problem.input_shape, self.problem.outputs)
        if not isinstance(model, keras.Model):
            raise AppError(
                f"{self.app.file}: model(): expected a keras.Model of Keras {keras.__version__},"
                f" got {type(model).__module__}.{type(model).__name__}: return keras.Model(inputs,"
                " outputs), a Sequential or a subclass of keras.Model"
            )
        batch = keras.KerasTensor((None, *self.problem.input_shape), dtype=self.problem.input_dtype)
        if len(getattr(model, "inputs", None) or [batch]) != 1:
            raise AppError(
                f"{self.app.file}: model(): expected one input, got {len(model.inputs)}:"
                " concatenate them"
            )
        with self.app.blamed("model"):
            answers = model(batch)
        if not isinstance(answers, keras.KerasTensor):
            raise AppError(
                f"{self.app.file}: model(): expected one tensor as its answer, got a"
                f" {type(answers).__name__}: concatenate the outputs and take them apart in loss()"
            )
        self._outside = notes_on_outside(computed, model)
        if self._built_by_a_call:
            self._traced(model)
        return model

    def _traced(self, model: Any) -> tuple["call_scope.CallScope", Any]:
        """The scope of a call that is traced, and its answers.

        Weights that only a real call makes are made by it.
        """
        variables = _variables(model)
        scopes: list[call_scope.CallScope] = []

        def called(inputs: Any, *values: Any) -> Any:
            with self.app.blamed("model"), call_scope.CallScope(variables, values) as scope:
                answers = model(inputs, training=True)
            scopes.append(scope)
            return answers

        concrete = tf.function(called, autograph=False).get_concrete_function(
            tf.TensorSpec((2, *self.problem.input_shape), self.problem.input_dtype),
            *(tf.TensorSpec(variable.shape, variable.dtype) for variable in variables),
        )
        nodes = nodes_of(concrete.graph.as_graph_def())
        self.has_library_layers = any(node.op in LIBRARY_OPS for node in nodes)
        return scopes[-1], concrete.outputs[0]

    def _use(self, compiled: Compiled) -> None:
        """Take what compile() was given for what the answers are for."""
        if compiled.loss is not None:
            self.objective = replace(self.objective, loss=compiled.loss)
        if compiled.metrics:
            self.objective = replace(
                self.objective,
                metrics=lambda y, p: {name: of(y, p) for name, of in compiled.metrics.items()},
            )

    @override
    def stated_settings(self) -> dict[str, Any] | None:
        return optimizer_settings(self.model)

    def _changed_by_a_call(self, scope: "call_scope.CallScope") -> list[int]:
        """Return which of the values that are not trained a call changes.

        Raises AppError for what cannot travel.
        """
        rest = self.model.non_trainable_variables
        for variable in self.model.trainable_variables:
            if scope.changes(variable):
                raise AppError(
                    f"{self.app.file}: model(): a call assigns weight {variable.path}, which is"
                    " trained: make it trainable=False, or leave the assignment out"
                )
        changed = [
            k
            for k, variable in enumerate(rest)
            if scope.changes(variable) and not call_scope.is_seed(variable)
        ]
        for k in changed:
            if rest[k].dtype != "float32":
                raise AppError(
                    f"{self.app.file}: model(): a call changes {rest[k].path}, which is"
                    f" {rest[k].dtype}: workers share such values as float32 averages; make it"
                    " float32, or leave it out"
                )
        return changed

    def _refuse_large_constants(self) -> None:
        size = sum(value.nbytes for value in self.frozen.values())
        if size > MOST_CONSTANT_BYTES:
            largest = max(self.frozen, key=lambda name: self.frozen[name].nbytes)
            raise AppError(
                f"{self.app.file}: model(): {size >> 20} MiB of weights are frozen, more than"
                f" {MOST_CONSTANT_BYTES >> 20} (the largest is {largest}): train them too, or"
                " compute what they answer once, in data()"
            )

    @override
    def initial(self, seed: int) -> Vector:
        """The bits are those of Keras's initializers on this machine."""
        if seed == self.seed:
            return self._initial.copy()
        return self._values_of(self._built(seed))

    def _values_of(self, model: Any) -> Vector:
        rest = model.non_trainable_variables
        values = dict(zip(self._names, map(np.asarray, model.trainable_variables), strict=True))
        values |= {name: np.asarray(rest[k]) for k, name in self._statistics.items()}
        return self.layout.pack(values)

    @override
    def apply(
        self, parameters: Tensors, windows: tf.Tensor, *, training: bool, seed: tf.Tensor
    ) -> ForwardPass:
        rest = []
        sites = 0
        untrained = self.model.non_trainable_variables
        for name, variable in zip(self._rest_names, untrained, strict=True):
            if call_scope.is_seed(variable):
                rest.append(call_scope.seed_of_site(seed, sites, variable.dtype))
                sites += 1
            elif name in self.frozen:
                rest.append(tf.constant(self.frozen[name]))
            else:
                rest.append(parameters[name])
        values = [*(parameters[name] for name in self._names), *rest]
        looped = [untrained[k] for k in sorted(self._looped)]
        if looped and for_xla():
            raise AppError(
                f"{self.app.file}: model(): a call changes {looped[0].path} inside a loop or branch"
                " of the graph, which XLA does not compile: take another kernel than xla, and"
                " no TPU"
            )
        with (
            self.app.blamed("model"),
            constants_travel(),
            call_scope.CallScope(_variables(self.model), values, looped=looped, seed=seed) as scope,
        ):
            output = self.model(windows, training=training)
            refuse_mask(self.app, output)
            answers = tf.cast(output, tf.float32)
            penalties = self.model.losses
        self._refuse_unforeseen(scope)
        if not training:
            return ForwardPass(answers)
        # The owner moves a statistic by STATISTICS_RATE towards what is pushed: push where that
        # lands on Keras's value.
        statistics = {}
        for k, name in self._statistics.items():
            before = parameters[name]
            now = scope.get_current_value(self.model.non_trainable_variables[k])
            statistics[name] = tf.stop_gradient(before + (now - before) / STATISTICS_RATE)
        return ForwardPass(answers, statistics, tf.add_n(penalties) if penalties else None)

    def _refuse_unforeseen(self, scope: "call_scope.CallScope") -> None:
        """Raise AppError for what this call changes in a loop and the call of `_traced` did not."""
        for variable in scope.lost.values():
            raise AppError(
                f"{self.app.file}: model(): a call changes {variable.path} inside a loop or branch"
                " of the graph, but another call does not: change it in each call, or leave it out"
            )

    @override
    def notes(self) -> list[str]:
        """Return lines on layers outside of the model, large tables and a default optimizer.

        A table's gradient travels whole.
        """
        tables = {
            layer.name: 4 * int(np.prod(layer.embeddings.shape))
            for layer in self.model._flatten_layers()
            if isinstance(layer, keras.layers.Embedding) and layer.trainable
        }
        large = [
            f"embedding {name}: its gradient travels whole, {size >> 20} MiB a step and worker; a"
            " smaller table, or codec fp16 or topk, sends less"
            for name, size in tables.items()
            if size > LARGE_TABLE_BYTES
        ]
        if takes_default(self.model):
            large.append(
                "compile() got no optimizer, or Keras's default of it, rmsprop:"
                " jobs.train.optimizer decides"
            )
        if stated := optimizer_settings(self.model):
            large.append(f"compile(): its optimizer trains, as by {words_of(stated)}")
        return self._outside + large + super().notes()

    @override
    def constants(self) -> dict[str, Any]:
        return self.frozen

    @override
    def fix(self, constants: Mapping[str, Any]) -> None:
        self.frozen = {name: constants[name] for name in self.frozen}

    @override
    def export(self, vector: Vector, folder: Path) -> None:
        """Write `model.keras`, which plain Keras opens.

        It takes inputs as the model gets them here: standardize them first where the data set is
        standardized.
        """
        try:
            with folder_beside(folder / EXPORTED) as partial:
                self.filled(vector).save(partial / EXPORTED)
                (partial / EXPORTED).rename(folder / EXPORTED)
        except OSError as problem:
            raise write_refusal(folder / EXPORTED, "the model cannot be written", problem) from None
        except (
            Exception
        ) as problem:  # whatever a layer of the app raises where it says how it is made
            raise AppError(
                f"{self.app.file}: model(): cannot be written as {EXPORTED} ({reason_of(problem)}):"
                " give its classes get_config() and @keras.saving.register_keras_serializable()"
            ) from problem

    def filled(self, vector: Vector) -> Any:
        """A Keras model with the values of a flat vector (layout.size,)."""
        model = self._built(self.seed)
        values = self.layout.unpack(vector)
        for name, variable in zip(self._names, model.trainable_variables, strict=True):
            variable.assign(values[name])
        rest = model.non_trainable_variables
        for k, name in self._statistics.items():
            rest[k].assign(values[name])
        for name, variable in zip(self._rest_names, rest, strict=True):
            if name in self.frozen:
                variable.assign(self.frozen[name])
        return model


def _variables(model: Any) -> list[Any]:
    return [*model.trainable_variables, *model.non_trainable_variables]


def _unique(paths: Sequence[str]) -> list[str]:
    """Return the paths, numbered where one came before: subclassed models repeat names."""
    counts: dict[str, int] = {}
    names = []
    for path in paths:
        counts[path] = counts.get(path, 0) + 1
        names.append(path if counts[path] == 1 else f"{path}#{counts[path]}")
    return names


def _ends_in_probabilities(answers: Any) -> bool:
    """Return whether the graph ends in a softmax or a sigmoid, which gives probabilities."""
    operation = answers.op
    while operation.type in ("Identity", "Cast", "Reshape", "Transpose"):
        operation = operation.inputs[0].op
    return operation.type in ("Softmax", "Sigmoid")
