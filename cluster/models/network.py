"""What every network is: named parameters, their initial values, and a pure function of them and some windows."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import tensorflow as tf

from cluster.models.initial import Draws, Initializer
from cluster.parameters.layout import Layout, ParameterSpec, Vector

Tensors = Mapping[str, tf.Tensor]


@dataclass(frozen=True)
class Parameter:
    """A named tensor of a network and how it starts."""

    spec: ParameterSpec
    initial: Initializer


@dataclass(frozen=True)
class Problem:
    """What the network is for: windows of shape (window_steps, channels), each one of `classes` activities."""

    window_steps: int
    channels: int
    classes: int


@dataclass(frozen=True)
class Output:
    """What a network says about a batch.

    `logits` has shape (batch, classes). `statistics` holds, for each untrained parameter and by its name, what this
    batch measured (empty outside training); whoever owns the vector averages it into the running value.
    """

    logits: tf.Tensor
    statistics: dict[str, tf.Tensor] = field(default_factory=dict)


class Network(ABC):
    """A network without state: parameters come in, logits go out, and nothing is remembered between calls."""

    def __init__(self, name: str, problem: Problem, parameters: Sequence[Parameter]) -> None:
        self.name = name
        self.problem = problem
        self.layout = Layout([parameter.spec for parameter in parameters])
        self._initializers = {parameter.spec.name: parameter.initial for parameter in parameters}

    def initial(self, seed: int) -> Vector:
        """The flat float32 vector of shape (layout.size,) to start from; equal seeds give equal bits anywhere."""
        values = {}
        for position, slot in enumerate(self.layout.slots):
            draws = Draws(seed, position)
            values[slot.spec.name] = self._initializers[slot.spec.name](draws, slot.spec.shape).astype(np.float32)
        return self.layout.pack(values)

    def unpack(self, flat: tf.Tensor) -> dict[str, tf.Tensor]:
        """The named tensors in a flat vector of shape (layout.size,), differentiable with respect to it."""
        parts = tf.split(flat, [slot.spec.size for slot in self.layout.slots])
        return {
            slot.spec.name: tf.reshape(part, slot.spec.shape)
            for slot, part in zip(self.layout.slots, parts, strict=True)
        }

    @abstractmethod
    def apply(self, parameters: Tensors, windows: tf.Tensor, *, training: bool, seed: tf.Tensor) -> Output:
        """Logits for standardized windows of shape (batch, window_steps, channels).

        `seed`, int32 of shape (2,), decides the dropout masks and nothing else; equal seeds drop equal elements.
        """

    @abstractmethod
    def knobs(self) -> dict[str, object]:
        """The settings that made this network, as JSON values."""

    def describe(self) -> dict[str, object]:
        """The `model` entry of `result.json`: name, trained parameters, untrained statistics, knobs."""
        return {
            "name": self.name,
            "parameters": self.layout.trained_size,
            "statistics": self.layout.statistics_size,
            **self.knobs(),
        }
