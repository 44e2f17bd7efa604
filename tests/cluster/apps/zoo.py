"""Seven Keras models of all usual layers, each with its input shape and outputs."""

from collections.abc import Callable
from typing import Any

import numpy as np

import pscluster
from cluster.apps.app_network import Kind
from core.ground.lazy import keras
from tests.cluster.apps.kit import classes
from tests.lazy import layers, own_keras

Maker = Callable[[tuple[int, ...], int], Any]


def dense(input_shape: tuple[int, ...], outputs: int) -> Any:
    """Dense layers with L2, activity regularization and Gaussian noise."""
    return keras.Sequential(
        [
            keras.Input(input_shape),
            layers.Dense(16, "relu", kernel_regularizer="l2"),
            layers.GaussianNoise(0.1),
            layers.LayerNormalization(),
            layers.Dense(8, "gelu", activity_regularizer="l1"),
            layers.Dense(outputs),
        ]
    )


def images(input_shape: tuple[int, ...], outputs: int) -> Any:
    """Convolutions with strides and groups, pooling, batch normalization, dropout."""
    return keras.Sequential(
        [
            keras.Input(input_shape, dtype="uint8"),
            layers.Rescaling(1 / 16),
            layers.Conv2D(8, 3, padding="same"),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.MaxPooling2D(),
            layers.SpatialDropout2D(0.2),
            layers.Conv2D(8, 3, strides=2, groups=2),
            layers.Flatten(),
            layers.Dropout(0.3),
            layers.Dense(outputs, "softmax"),
        ]
    )


def recurrent(input_shape: tuple[int, ...], outputs: int) -> Any:
    """Our LSTM, a bidirectional GRU, our dense layer; dropout of their own."""
    return keras.Sequential(
        [
            keras.Input(input_shape),
            pscluster.keras.LSTM(8, return_sequences=True, dropout=0.2),
            layers.Bidirectional(layers.GRU(6)),
            pscluster.keras.Dense(outputs),
        ]
    )


def text(input_shape: tuple[int, ...], outputs: int) -> Any:
    """Embedding with a mask, a recurrent layer over it, and an embedding shared by two layers."""
    inputs = keras.Input(input_shape, dtype="int32")
    table = layers.Embedding(20, 8, mask_zero=True)
    hidden = layers.SimpleRNN(8)(table(inputs))
    mean = layers.GlobalAveragePooling1D()(table(inputs))
    return keras.Model(inputs, layers.Dense(outputs)(layers.Concatenate()([hidden, mean])))


def subclassed(input_shape: tuple[int, ...], outputs: int) -> Any:
    """See `own_keras.Gated`; the shapes allow its layer to be used twice."""
    assert input_shape == (12,)
    return own_keras.Gated(outputs)


def frozen(input_shape: tuple[int, ...], outputs: int) -> Any:
    """A frozen layer, an adapted normalization, a frozen batch norm, a functional graph."""
    normalization = layers.Normalization(mean=1.0, variance=4.0)
    inputs = keras.Input(input_shape)
    first = layers.Dense(8, "relu", name="first")
    norm = layers.BatchNormalization(name="norm")
    hidden = norm(first(normalization(inputs)))
    first.trainable = norm.trainable = False
    return keras.Model(inputs, layers.Dense(outputs)(layers.PReLU()(layers.Dense(8)(hidden))))


def mixed(input_shape: tuple[int, ...], outputs: int) -> Any:
    """Float32 weights that compute in bfloat16, and a part with weights in a Sequential."""
    return keras.Sequential(
        [
            keras.Input(input_shape),
            layers.Dense(16, "relu", dtype="mixed_bfloat16"),
            keras.Sequential([layers.Dense(8), layers.ELU()]),
            layers.Dense(outputs, dtype="float32"),
        ]
    )


Entry = tuple[Maker, tuple[int, ...], str]
MODELS: dict[str, Entry] = {
    "dense": (dense, (12,), "float32"),
    "images": (images, (8, 8, 2), "uint8"),
    "recurrent": (recurrent, (12, 5), "float32"),
    "text": (text, (10,), "int32"),
    "subclassed": (subclassed, (12,), "float32"),
    "frozen": (frozen, (12,), "float32"),
    "mixed": (mixed, (12,), "float32"),
}
"""By name: the function, the shape of an example and its type."""


def kind_of(entry: Entry) -> Kind:
    """What such a model is for."""
    return classes(*entry[1:])


def examples(kind: Kind, random: np.random.Generator, count: int) -> Any:
    """Draw random examples."""
    shape = (count, *kind.input_shape)
    if kind.input_dtype == "float32":
        return random.normal(size=shape).astype(np.float32)
    return random.integers(0, 16, shape).astype(kind.input_dtype)
