"""A Keras model as a network of the engine: its weights become slices of the flat vector, its call a pure function.

Keras keeps three kinds of values that are not trained. Seeds of random generators: each gets a seed of its own from
that of the micro-batch, so that who computes it does not matter. Values that a call changes, such as the moving
averages of BatchNormalization: they go into the vector's statistics. Values that no call changes, such as a frozen
layer's weights: they are constants of the graph.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np

import cluster.engine.environment  # noqa: F401  (before tensorflow)
from cluster.apps.app import App, AppError
from cluster.apps.networks import AppNetwork, Kind
from cluster.atomic_write import refused
from cluster.errors import reason_of
from cluster.models.network import Output, Tensors
from cluster.parameters import STATISTICS_RATE, Layout, ParameterSpec, Vector

import tensorflow as tf  # isort: skip

MOST_FROZEN_BYTES = 64 << 20
"""Constants travel to each worker in every function: a graph ends at 2 GiB, and a Pi's memory before that."""

EXPORTED = "model.keras"
LARGE_TABLE_BYTES = 8 << 20

SEED_STATE = "seed_generator_state"


class KerasNetwork(AppNetwork):
    """See the module."""

    def __init__(self, app: App, kind: Kind, seed: int) -> None:
        """Build the app's model with `seed`. Raises AppError for what cannot be trained here."""
        super().__init__(app, kind, seed)
        self.model = self._built(seed)
        self._refuse()
        self._names = _unique([variable.path for variable in self.model.trainable_variables])
        rest = self.model.non_trainable_variables
        self._changed, probabilities = self._traced(rest)
        if probabilities:
            self.objective = replace(self.objective, probabilities=True)
        rest_names = _unique([variable.path for variable in rest])
        self._statistics = {k: rest_names[k] for k in self._changed}
        specs = [
            ParameterSpec(name, tuple(variable.shape), decayed=len(variable.shape) > 1)
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
            if k not in self._changed and not _is_seed(variable)
        }
        self._rest_names = rest_names
        self._refuse_large_constants()
        self._initial = self._values_of(self.model)
        """Read now: once the cluster is connected, TensorFlow no longer finds what was on its own in this process."""

    def _built(self, seed: int) -> Any:
        keras.utils.set_random_seed(seed % 2**32)
        model = self.app.call("model", self.problem.input_shape, self.problem.outputs)
        if not isinstance(model, keras.Model):
            raise AppError(
                f"{self.app.file}: model(): expected a keras.Model of Keras {keras.__version__}, got "
                f"{type(model).__module__}.{type(model).__name__}: return keras.Model(inputs, outputs), a Sequential "
                "or a subclass of keras.Model"
            )
        batch = keras.KerasTensor((None, *self.problem.input_shape), dtype=self.problem.input_dtype)
        if len(getattr(model, "inputs", None) or [batch]) != 1:
            raise AppError(f"{self.app.file}: model(): expected one input, got {len(model.inputs)}: concatenate them")
        with self.app.blamed("model"):
            answers = model(batch)
        if not isinstance(answers, keras.KerasTensor):
            raise AppError(
                f"{self.app.file}: model(): expected one tensor as its answer, got a {type(answers).__name__}: "
                "concatenate the outputs and take them apart in loss()"
            )
        return model

    def _refuse(self) -> None:
        file = self.app.file
        if not self.model.trainable_variables:
            raise AppError(f"{file}: model(): it has no weight to train: set trainable = True on a layer")
        for variable in self.model.trainable_variables:
            if variable.dtype != "float32":
                raise AppError(
                    f"{file}: model(): weight {variable.path} is {variable.dtype}: expected float32 weights; to "
                    'compute in half precision use dtype="mixed_bfloat16"'
                )
        for layer in self.model._flatten_layers():
            if getattr(layer, "compute_dtype", None) == "float16":
                raise AppError(
                    f"{file}: model(): layer {layer.name} computes in float16, where small gradients become 0, because "
                    'the cluster scales no loss: use dtype="mixed_bfloat16", which needs no scale'
                )
            if getattr(layer, "stateful", False):
                raise AppError(
                    f"{file}: model(): layer {layer.name} is stateful: its state would depend on which worker saw "
                    "which example before; leave out stateful=True"
                )

    def _traced(self, rest: Sequence[Any]) -> tuple[list[int], bool]:
        """Which of the values that are not trained a training call changes, and whether it ends in probabilities.

        Raises AppError for what cannot travel.
        """
        variables = [*self.model.trainable_variables, *rest]
        changes: list[bool] = []

        def called(inputs: Any, *given: Any) -> Any:
            mapping = list(zip(variables, given, strict=True))
            with self.app.blamed("model"), keras.StatelessScope(state_mapping=mapping, collect_losses=True) as scope:
                answers = self.model(inputs, training=True)
            changes.extend(scope.get_current_value(variable) is not before for variable, before in mapping)
            return answers

        concrete = tf.function(called, autograph=False).get_concrete_function(
            tf.TensorSpec((2, *self.problem.input_shape), self.problem.input_dtype),
            *(tf.TensorSpec(variable.shape, variable.dtype) for variable in variables),
        )
        trained = len(self.model.trainable_variables)
        for variable, changes_it in zip(self.model.trainable_variables, changes[:trained], strict=True):
            if changes_it:
                raise AppError(
                    f"{self.app.file}: model(): a call assigns weight {variable.path}, which is trained: make it "
                    "trainable=False, or leave the assignment out"
                )
        changed = [k for k, variable in enumerate(rest) if changes[trained + k] and not _is_seed(variable)]
        for k in changed:
            if rest[k].dtype != "float32":
                raise AppError(
                    f"{self.app.file}: model(): a call changes {rest[k].path}, which is {rest[k].dtype}: workers share "
                    "such values as float32 averages; make it float32, or leave it out"
                )
        return changed, _ends_in_probabilities(concrete.outputs[0])

    def _refuse_large_constants(self) -> None:
        size = sum(value.nbytes for value in self.frozen.values())
        if size > MOST_FROZEN_BYTES:
            largest = max(self.frozen, key=lambda name: self.frozen[name].nbytes)
            raise AppError(
                f"{self.app.file}: model(): {size >> 20} MiB of weights are frozen, more than "
                f"{MOST_FROZEN_BYTES >> 20} (the largest is {largest}): train them too, or compute what they answer "
                "once, in data()"
            )

    def initial(self, seed: int) -> Vector:
        """See Network; the bits are those of Keras's initializers on this machine."""
        return self._initial.copy() if seed == self.seed else self._values_of(self._built(seed))

    def _values_of(self, model: Any) -> Vector:
        rest = model.non_trainable_variables
        values = dict(zip(self._names, map(np.asarray, model.trainable_variables), strict=True))
        values |= {name: np.asarray(rest[k]) for k, name in self._statistics.items()}
        return self.layout.pack(values)

    def apply(self, parameters: Tensors, windows: tf.Tensor, *, training: bool, seed: tf.Tensor) -> Output:
        """See Network."""
        rest, sites = [], 0
        for name, variable in zip(self._rest_names, self.model.non_trainable_variables, strict=True):
            if _is_seed(variable):
                own = tf.random.experimental.stateless_fold_in(seed, sites, alg="philox")
                rest.append(tf.cast(tf.bitcast(own, tf.uint32), variable.dtype))
                sites += 1
            elif name in self.frozen:
                rest.append(tf.constant(self.frozen[name]))
            else:
                rest.append(parameters[name])
        variables = [*self.model.trainable_variables, *self.model.non_trainable_variables]
        given = [*(parameters[name] for name in self._names), *rest]
        with self.app.blamed("model"), keras.StatelessScope(
            state_mapping=list(zip(variables, given, strict=True)), collect_losses=True
        ) as scope:  # fmt: skip
            answers = tf.cast(self.model(windows, training=training), tf.float32)
            penalties = self.model.losses
        if not training:
            return Output(answers)
        # The owner moves a statistic by STATISTICS_RATE towards what is pushed: push where that lands on Keras's value.
        statistics = {}
        for k, name in self._statistics.items():
            before, now = parameters[name], scope.get_current_value(self.model.non_trainable_variables[k])
            statistics[name] = tf.stop_gradient(before + (now - before) / STATISTICS_RATE)
        return Output(answers, statistics, tf.add_n(penalties) if penalties else None)

    def notes(self) -> list[str]:
        """See AppNetwork: tables whose gradient travels whole although a batch uses few of their rows."""
        tables = {
            layer.name: 4 * int(np.prod(layer.embeddings.shape))
            for layer in self.model._flatten_layers()
            if isinstance(layer, keras.layers.Embedding) and layer.trainable
        }
        return [
            f"embedding {name}: its gradient travels whole, {size >> 20} MiB a step and worker; a smaller table, or "
            "codec fp16 or topk, sends less"
            for name, size in tables.items()
            if size > LARGE_TABLE_BYTES
        ]

    def constants(self) -> dict[str, Any]:
        """See AppNetwork."""
        return self.frozen

    def fix(self, constants: Mapping[str, Any]) -> None:
        """See AppNetwork."""
        self.frozen = {name: constants[name] for name in self.frozen}

    def export(self, vector: Vector, folder: Path) -> None:
        """See AppNetwork: `model.keras`, which plain Keras opens.

        It takes inputs as the model gets them here: standardize them first where the data set is standardized.
        """
        partial = folder / f".{os.getpid()}.partial.keras"
        try:
            self.filled(vector).save(partial)
            partial.rename(folder / EXPORTED)
        except OSError as problem:
            raise refused(folder / EXPORTED, "the model cannot be written", problem) from None
        except Exception as problem:  # whatever a layer of the app raises where it says how it is made
            raise AppError(
                f"{self.app.file}: model(): cannot be written as {EXPORTED} ({reason_of(problem)}): give its classes "
                "get_config() and @keras.saving.register_keras_serializable()"
            ) from problem
        finally:
            partial.unlink(missing_ok=True)

    def filled(self, vector: Vector) -> Any:
        """A Keras model with the values of a flat vector (layout.size,)."""
        model, values = self._built(self.seed), self.layout.unpack(vector)
        for name, variable in zip(self._names, model.trainable_variables, strict=True):
            variable.assign(values[name])
        rest = model.non_trainable_variables
        for k, name in self._statistics.items():
            rest[k].assign(values[name])
        for name, variable in zip(self._rest_names, rest, strict=True):
            if name in self.frozen:
                variable.assign(self.frozen[name])
        return model


def _is_seed(variable: Any) -> bool:
    return bool(variable.path.endswith(SEED_STATE))


def _unique(paths: Sequence[str]) -> list[str]:
    """The paths with a number behind those that came before: subclassed models may repeat a layer's name."""
    seen: dict[str, int] = {}
    names = []
    for path in paths:
        seen[path] = seen.get(path, 0) + 1
        names.append(path if seen[path] == 1 else f"{path}#{seen[path]}")
    return names


def _ends_in_probabilities(answers: Any) -> bool:
    """Whether the graph ends in a softmax or a sigmoid, as people write it who think of probabilities."""
    operation = answers.op
    while operation.type in ("Identity", "Cast", "Reshape", "Transpose"):
        operation = operation.inputs[0].op
    return operation.type in ("Softmax", "Sigmoid")
