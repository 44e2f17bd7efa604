"""A Keras model as a network of the engine, for tests that want layers which are not ours."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cluster.models.network import Network, Output, Problem, Tensors
from cluster.models.thesis import ThesisModel
from cluster.parameters import Layout, ParameterSpec, Vector

Make = Callable[[tuple[int, int], int], keras.Model]
STATISTICS_RATE = 0.1
"""How far the shards move their statistics towards what a step measured."""


class OfKeras(Network):
    """Trainable weights are the vector, moving averages its statistics; each dropout gets a seed of its own."""

    @classmethod
    def widest_layer(cls, options: ThesisModel) -> int:
        return options.hidden

    def __init__(self, make: Make, problem: Problem) -> None:
        self.config, self.problem = ThesisModel(), problem  # the configuration is only described and stored
        keras.utils.set_random_seed(0)
        self._model = make((problem.window_steps, problem.channels), problem.classes)
        trained, rest = self._model.trainable_variables, self._model.non_trainable_variables
        self._seeds = [variable.path.endswith("seed_generator_state") for variable in rest]
        averaged = [variable for variable, seed in zip(rest, self._seeds, strict=True) if not seed]
        self._averaged = [variable.path for variable in averaged]
        self.layout = Layout(
            [ParameterSpec(each.path, tuple(each.shape), decayed=len(each.shape) > 1) for each in trained]
            + [ParameterSpec(each.path, tuple(each.shape), trained=False, decayed=False) for each in averaged]
        )
        self._initial = self.layout.pack({each.path: np.asarray(each) for each in [*trained, *averaged]})

    def initial(self, seed: int) -> Vector:
        return self._initial.copy()

    def apply(self, parameters: Tensors, windows: tf.Tensor, *, training: bool, seed: tf.Tensor) -> Output:
        trained = [parameters[slot.spec.name] for slot in self.layout.slots if slot.spec.trained]
        averages, rest = iter(self._averaged), list[Any]()
        for site, is_seed in enumerate(self._seeds):
            if is_seed:
                own = tf.random.experimental.stateless_fold_in(seed, site, alg="philox")
                rest.append(tf.bitcast(own, tf.uint32))
            else:
                rest.append(parameters[next(averages)])
        logits, after = self._model.stateless_call(trained, rest, windows, training=training)
        if not training:
            return Output(logits)
        moved = [new for new, is_seed in zip(after, self._seeds, strict=True) if not is_seed]
        # Keras answers with the moved average: what the shards must move towards to get there.
        return Output(logits, {
            name: tf.stop_gradient(parameters[name] + (new - parameters[name]) / STATISTICS_RATE)
            for name, new in zip(self._averaged, moved, strict=True)
        })  # fmt: skip


def recurrent(shape: tuple[int, int], classes: int) -> keras.Model:
    """Convolution, batch norm, dropout and a GRU from either end."""
    inputs = keras.Input(shape)
    outputs = keras.layers.Conv1D(32, 5, strides=2, activation="relu")(inputs)
    outputs = keras.layers.BatchNormalization()(outputs)
    outputs = keras.layers.Dropout(0.2)(outputs)
    outputs = keras.layers.Bidirectional(keras.layers.GRU(16))(outputs)
    return keras.Model(inputs, keras.layers.Dense(classes)(outputs))
