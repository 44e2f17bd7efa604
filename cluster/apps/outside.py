"""Layers that compute while a model is made and are no part of it.

What they answer is a constant, as in Keras.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from core.ground.lazy import keras, tf


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


def notes_on(layers: Sequence[Any], model: Any) -> list[str]:
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
