"""The tutorial's training under ParameterServerStrategy, a process of its own.

`python -m benchmarks.wire.in_keras`.

It follows TensorFlow's "Parameter server training with ParameterServerStrategy", custom loop: model
and optimizer are made in the strategy's scope, each step is scheduled by a ClusterCoordinator,
gradients are applied inside `strategy.run`. The variant `read_once` changes one thing: the weights
are read into tensors before the forward pass, which then works on those. Both start from the
weights ours starts from. Prints one JSON object a variant and line, the tutorial's last: should it
hang, the other is already known.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any

import core.engine.environment  # noqa: F401  (before tensorflow)
from benchmarks.wire.network import (
    BATCH,
    LEARNING_RATE,
    ResidualBidirectional,
    keras_model,
    keras_weights,
    windows,
)
from benchmarks.wire.steps import arguments, report, timed_steps
from core.inventory import Inventory, load
from core.models.network import Network

import keras  # isort: skip
import tensorflow as tf  # isort: skip


def strategy_of(inventory: Inventory) -> Any:
    """ParameterServerStrategy over the inventory's tasks, this process being the chief."""
    jobs = {
        "chief": [inventory.task("coordinator", 0).address],
        "ps": [task.address for task in inventory.of_role("ps")],
        "worker": [task.address for task in inventory.of_role("worker")],
    }
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(jobs), task_type="chief", task_id=0, rpc_layer="grpc"
    )
    return tf.distribute.ParameterServerStrategy(resolver)


def batches() -> Any:
    """The data set every worker makes for itself."""
    return (
        tf.data.Dataset.from_tensor_slices(windows(2 * BATCH))
        .repeat()
        .batch(BATCH, drop_remainder=True)
    )


def step_of(strategy: Any, model: Any, optimizer: Any, *, read_once: bool) -> Any:
    """The function to schedule: one batch of the worker's iterator, one update."""
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def replica(features: Any, classes: Any) -> Any:
        with tf.GradientTape() as tape:
            if read_once:
                watched = [
                    tf.identity(variable.value.read_value())
                    for variable in model.trainable_variables
                ]
                # The states of the layers' seed generators, which are unused: no layer here has
                # dropout.
                untrained = [variable.value for variable in model.non_trainable_variables]
                tape.watch(watched)
                logits, _ = model.stateless_call(watched, untrained, features, training=True)
            else:
                watched = model.trainable_variables
                logits = model(features, training=True)
            loss = loss_of(classes, logits)
        gradients = tape.gradient(loss, watched)
        optimizer.apply(gradients, model.trainable_variables)
        return loss

    @tf.function
    def step(iterator: Any) -> Any:
        features, classes = next(iterator)
        loss = strategy.run(replica, args=(features, classes))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, loss, axis=None)

    return step


class OurKernels:
    """The engine's own network behind a Keras model's face.

    A variable a parameter, our layers and our LSTM kernels.
    """

    def __init__(self, network: Network) -> None:
        """Made in a strategy's scope, which places the variables."""
        self._network = network
        values = network.layout.unpack(network.initial(0))
        self.trainable_variables = [
            keras.Variable(value, trainable=True, name=name.replace("/", "_"))
            for name, value in values.items()
        ]
        self.non_trainable_variables: list[Any] = []
        self._names = list(values)

    def count_params(self) -> int:
        """Trained values."""
        return self._network.layout.trained_size

    def stateless_call(
        self, trained: Sequence[Any], untrained: Sequence[Any], features: Any, *, training: bool
    ) -> tuple[Any, Sequence[Any]]:
        """Return the logits of `features` (batch, steps, channels) at the tensors `trained`."""
        named = dict(zip(self._names, trained, strict=True))
        return (
            self._network.apply(
                named, features, training=training, seed=tf.constant([0, 0])
            ).logits,
            untrained,
        )


def steps_of(
    strategy: Any, coordinator: Any, *, read_once: bool, our_kernels: bool = False
) -> tuple[int, Callable[[int], list[float]]]:
    """Return the number of parameters, and a function that trains some steps and returns losses.

    `our_kernels` computes with the engine's layers instead of Keras's, which reads the weights once
    in any case.
    """
    network = ResidualBidirectional()
    with strategy.scope():
        if our_kernels:
            model: Any = OurKernels(network)
        else:
            model = keras_model()
            model.set_weights(keras_weights(network, network.initial(0)))
        optimizer = keras.optimizers.Adam(LEARNING_RATE)
        optimizer.build(model.trainable_variables)
    step = step_of(strategy, model, optimizer, read_once=read_once or our_kernels)
    iterator = iter(coordinator.create_per_worker_dataset(batches))

    def run(count: int) -> list[float]:
        losses = [coordinator.schedule(step, args=(iterator,)) for _ in range(count)]
        coordinator.join()
        return [float(loss.fetch()) for loss in losses]

    return model.count_params(), run


def main() -> None:
    """Train each variant for the steps asked for and print what they moved."""
    given = arguments("benchmarks.wire.in_keras").parse_args()
    inventory = load(given.inventory)
    strategy = strategy_of(inventory)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    for variant, read_once in (("read_once", True), ("tutorial", False)):
        parameters, run = steps_of(strategy, coordinator, read_once=read_once)
        report(variant, parameters, timed_steps(inventory, run, given))
    os._exit(0)  # the strategy's destructors wait for the servers


if __name__ == "__main__":
    main()
